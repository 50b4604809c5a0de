"""What plans and replays does without tensors: importing it must not cost seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

PURE = (
    "offload.belady",
    "offload.budget",
    "offload.eviction.belady",
    "offload.eviction.held_out",
    "offload.eviction.tuned_weights",
    "offload.eviction.tuning",
    "offload.history_sweep",
    "offload.policy_comparison",
    "offload.prefetch.layers_ahead_gain",
    "offload.prefetch.router_ahead_floor",
    "offload.prefetch.router_ahead_gain",
    "offload.profile",
    "offload.replay",
    "offload.slot_planning.nonuniform",
    "offload.trace_writer",
)


@pytest.mark.parametrize("name", PURE)
def test_no_torch(name):
    code = f"import sys, {name}; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-P", "-c", code], cwd=root, env={"PYTHONPATH": str(root)}).returncode == 0
