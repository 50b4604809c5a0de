"""A model on ggml is loaded, asked and sampled from without torch and without the model library: both are memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.backends.ggml.availability import ggml_problem
from tests.gguf_files import write_gguf

pytestmark = pytest.mark.skipif(bool(ggml_problem()), reason="ggml cannot be used here")
_ASK = """
import sys
from engine.api import Message, Submit
from engine.config import EngineConfig, SamplingConfig
from engine.process.session import Session

config = EngineConfig(sys.argv[1], backend="auto", residency=0.5, context_tok=512, compute_threads=1)
session = Session(config, lambda event: None, lambda snapshot: None, lambda: False)
for temperature in (0.0, 0.8):
    sampling = SamplingConfig(temperature=temperature, top_p=0.9, repetition_penalty=1.1, max_new_tok=4)
    session.answer(Submit(1, (Message("user", "Where is the sea?"),), sampling))
session.close()
print([name for name in ("torch", "transformers") if name in sys.modules])
"""


def test_neither_torch_nor_the_model_library_is_imported(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", quant="Q8_0", hidden=64, expert_ff=32, heads=2, head_dim=32)
    command = [sys.executable, "-P", "-c", _ASK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=_environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
