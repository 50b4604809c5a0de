"""A GGUF file as a model: in menus, and when it changes while it is in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.checkpoint.catalogue import describe_folder, find_models
from engine.checkpoint.gguf.header import read_gguf
from engine.errors import CheckpointError
from engine.process.weights_watch import WeightsWatch
from tests.gguf_files import write_gguf

SMALL = {"layers": 2, "hidden": 32, "expert_ff": 32, "dense_ff": 32, "head_dim": 16, "experts": 8, "top_k": 2}


@pytest.mark.parametrize("arch", ["qwen3moe", "glm4moe"])
def test_an_entry_of_the_menu(tmp_path: Path, arch: str) -> None:
    path = write_gguf(tmp_path / "Tiny-Q8_0.gguf", arch, "Q8_0", **SMALL)
    for place in (path, tmp_path):
        entry = describe_folder(place)
        assert (entry.name, entry.location, entry.is_supported, entry.reason) == ("Tiny-Q8_0", str(path), True, "")
        assert (entry.architecture, entry.num_layers, entry.num_experts, entry.top_k) == (arch, 2, 8, 2)
        assert entry.total_bytes == path.stat().st_size


def test_models_in_listed_folders(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    one = write_gguf(tmp_path / "a-Q8_0.gguf", quant="Q8_0", **SMALL)
    two = write_gguf(tmp_path / "deep" / "b.gguf", quant="F32", split_max_tensors=20, **SMALL)
    (tmp_path / "deep" / "mmproj-b.gguf").write_bytes(b"GGUF")
    (tmp_path / "deep" / "broken.gguf").write_bytes(b"GGUF")
    found = [entry for entry in find_models([tmp_path, one]) if str(tmp_path) in entry.location]
    assert [(entry.name, entry.is_supported) for entry in found] == [("a-Q8_0", True), ("b", True), ("broken", False)]
    parts = read_gguf(two).paths
    assert len(parts) > 1
    assert found[1].total_bytes == sum(part.stat().st_size for part in parts)
    assert found[2].reason.startswith("damaged: broken.gguf is cut off")


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    def reason(name: str, arch: str = "qwen3moe", **options: object) -> str:
        return describe_folder(write_gguf(tmp_path / name, arch, "F32", **{**SMALL, **options})).reason

    assert (
        reason("a.gguf", extra={"general.architecture": "llama4"})
        == "it is a dense model: there are no routed experts to offload"
    )
    assert reason("b.gguf", extra={"general.architecture": "unheard", "unheard.expert_count": 8}).endswith("'unheard'")
    assert "carries no tokenizer" in reason("c.gguf", extra={"tokenizer.ggml.tokens": None})
    os.truncate(tmp_path / "b.gguf", 100_000)
    assert describe_folder(tmp_path / "b.gguf").reason.startswith("damaged: b.gguf is cut off: 100000 of ")
    assert "holds 3 GGUF models" in describe_folder(tmp_path).reason


def test_a_part_that_changes_while_in_use(tmp_path: Path) -> None:
    file = read_gguf(write_gguf(tmp_path / "a.gguf", quant="F32", split_max_tensors=20, **SMALL))
    watch = WeightsWatch(file.paths)
    watch.require_unchanged()
    assert watch.notice() is None
    os.utime(file.paths[1], ns=(1, 1))
    with pytest.raises(CheckpointError, match=r"a-00002-of-00002\.gguf was changed"):
        watch.require_unchanged()
    assert watch.notice() is not None
