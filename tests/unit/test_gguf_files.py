"""The GGUF models that tests write are such as llama.cpp runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.gguf_files import QUANTS, write_gguf
from tests.llama_cpp import has_llama_cpp, llama_logits

pytestmark = pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")
_IDS = [10, 20, 30]


@pytest.mark.parametrize("arch", ["qwen3moe", "glm4moe"])
@pytest.mark.parametrize("quant", ["F32", "Q4_K_M", *(pytest.param(name, marks=pytest.mark.long) for name in QUANTS)])
def test_llama_cpp_runs_them(tmp_path: Path, arch: str, quant: str) -> None:
    logits = llama_logits(write_gguf(tmp_path / "a.gguf", arch, quant, layers=2), _IDS)
    assert logits.shape[0] == len(_IDS)
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 3


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    sizes = {"layers": 1, "hidden": 32, "expert_ff": 32, "head_dim": 16}
    one, two, other = (
        write_gguf(tmp_path / name, quant="Q8_0", seed=seed, **sizes).read_bytes()
        for name, seed in (("a.gguf", 1), ("b.gguf", 1), ("c.gguf", 2))
    )
    assert one == two
    assert one != other
