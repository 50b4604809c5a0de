"""Settings for drawing tokens out of a GGUF file's metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.metadata import Metadata
from engine.errors import CheckpointError
from engine.sampling.defaults import ModelDefaults
from engine.sampling.gguf_defaults import gguf_defaults
from tests.gguf_files import write_gguf

SMALL = {"layers": 1, "hidden": 32, "expert_ff": 32, "head_dim": 16}


def defaults(path: Path, **keys: object) -> ModelDefaults:
    extra = {f"general.sampling.{name}": value for name, value in keys.items()}
    return gguf_defaults(Metadata(read_gguf(write_gguf(path, quant="F32", extra=extra, **SMALL))), {3, 5})


def test_a_file_without_settings_is_greedy(tmp_path: Path) -> None:
    assert defaults(tmp_path / "a.gguf") == ModelDefaults(end_tokens=frozenset({3, 5}))


def test_settings_of_a_file(tmp_path: Path) -> None:
    found = defaults(tmp_path / "a.gguf", temp=0.6, top_k=20, top_p=0.95, penalty_repeat=1.0, mirostat=2)
    assert (found.do_sample, found.top_k, found.repetition_penalty) == (True, 20, None)
    assert found.temperature == pytest.approx(0.6)
    assert found.top_p == pytest.approx(0.95)
    assert not defaults(tmp_path / "b.gguf", temp=0.0).do_sample


def test_a_setting_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a\.gguf: temperature is -1"):
        defaults(tmp_path / "a.gguf", temp=-1.0)
    with pytest.raises(CheckpointError, match=r"general\.sampling\.top_p is 'x'"):
        defaults(tmp_path / "b.gguf", top_p="x")
