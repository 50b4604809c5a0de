"""The library, asked to load a folder, loads the files that we chose."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.checkpoint.index import read_index
from engine.checkpoint.library_folder import folder_for_library
from engine.checkpoint.shards import INDEX_FILE
from tests.unit.engine.conftest import TinyFolder

SINGLE = "model.safetensors"
NORM = "model.norm.weight"


@pytest.fixture
def folder(tiny_folder: TinyFolder, tmp_path: Path) -> Path:
    """A copy of a checkpoint whose last norm is 1."""
    return Path(shutil.copytree(tiny_folder("qwen3_moe"), tmp_path / "model"))


def split(folder: Path, names: tuple[str, str]) -> None:
    """The weights in two files, the last norm filled with 2."""
    weights = load_file(folder / SINGLE)
    weights[NORM] = torch.full_like(weights[NORM], 2)
    halves = [{key: weights[key] for key in sorted(weights)[number::2]} for number in range(2)]
    for name, half in zip(names, halves, strict=True):
        save_file(half, folder / name, {"format": "pt"})


def test_the_folder_itself_where_the_library_chooses_alike(folder: Path) -> None:
    with folder_for_library(folder) as found:
        assert found == folder


@pytest.mark.parametrize("layout", ["an index and a stray file", "a set without an index", "another name"])
def test_the_weights_are_the_same(folder: Path, layout: str) -> None:
    names = ("part-00001-of-00002.safetensors", "part-00002-of-00002.safetensors")
    if layout == "another name":
        (folder / SINGLE).rename(folder / "own.safetensors")
    else:
        split(folder, names)
    if layout == "an index and a stray file":
        weight_map = {key: name for name in names for key in load_file(folder / name)}
        (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    elif layout == "a set without an index":
        (folder / SINGLE).unlink()
    with folder_for_library(folder) as found:
        assert found != folder
        model = AutoModelForCausalLM.from_pretrained(found, dtype="auto")
    assert torch.equal(model.model.norm.weight.data, read_index(folder)[NORM].read())
    assert not found.exists()
