"""What plans and replays does without tensors: importing it must not cost seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

PURE = (
    "offload.replay.belady",
    "offload.budget",
    "offload.replay.belady_eviction",
    "offload.replay.held_out",
    "offload.policies.eviction.tuned_weights",
    "offload.replay.tuning",
    "offload.replay.history_sweep",
    "offload.replay.policy_comparison",
    "offload.policies.prefetch.layers_ahead_gain",
    "offload.policies.prefetch.router_ahead_floor",
    "offload.policies.prefetch.router_ahead_gain",
    "offload.replay.profile",
    "offload.replay.replay",
    "offload.replay.trace_run",
    "offload.policies.slot_planning.nonuniform",
    "offload.replay.trace_writer",
)


@pytest.mark.parametrize("name", PURE)
def test_no_torch(name):
    code = f"import sys, {name}; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-P", "-c", code], cwd=root, env={"PYTHONPATH": str(root)}).returncode == 0
