"""What was measured of a model is kept for its next load, and never trusted when it is damaged or of something else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.backends.transformers import known_needs
from engine.backends.transformers.inspection import inspect_model
from engine.backends.transformers.memory_needs import MemoryNeeds
from engine.plan.measured_needs import MAX_MODELS, MeasuredNeeds, NeedsOfForward, keep_measured, read_measured
from engine.plan.model_plan import ChunkNeeds, GrowingBytes
from tests.unit.engine.conftest import TinyFolder

NEEDS = MeasuredNeeds((2, 2, 2), False, {64: NeedsOfForward(GrowingBytes(1, 2), GrowingBytes(3, 4))})


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept; nothing is there yet."""
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "measured-needs.json"


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each time that a model is run on shapes from its beginning."""
    begun: list[int] = []
    begin = MemoryNeeds.__init__

    def counted(self: MemoryNeeds, model: object, context_tok: int) -> None:
        begun.append(context_tok)
        begin(self, model, context_tok)

    monkeypatch.setattr(MemoryNeeds, "__init__", counted)
    return begun


def needs_of(folder: Path, chunk_tok: int = 64) -> tuple[tuple[int, ...], bool, ChunkNeeds]:
    inspected = inspect_model(folder)
    return inspected.top_ks, inspected.uses_library_cache, inspected.needs_of(chunk_tok)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "minimax"])
def test_a_second_load_runs_no_forward_and_plans_the_same(
    name: str, tiny_folder: TinyFolder, forwards: list[int]
) -> None:
    first = needs_of(tiny_folder(name))
    assert needs_of(tiny_folder(name)) == first
    assert len(forwards) == 1
    assert needs_of(tiny_folder(name), 32) != first
    needs_of(tiny_folder(name), 32)
    assert len(forwards) == 2


def test_another_model_or_library_is_measured_anew(
    tiny_folder: TinyFolder, tmp_path: Path, forwards: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder("qwen3_moe")
    first = needs_of(folder)
    monkeypatch.setattr(known_needs.transformers, "__version__", "0.0")
    assert needs_of(folder) == first
    assert len(forwards) == 2
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(folder / name)
    config = json.loads((folder / "config.json").read_text()) | {"num_experts_per_tok": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert needs_of(tmp_path)[0] == (3, 3, 3)
    assert len(forwards) == 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def change_a_number(path: Path) -> None:
    content = json.loads(path.read_text())
    next(iter(content.values()))["chunks"]["64"][2] = 1
    path.write_text(json.dumps(content))


def change_a_kind(path: Path) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(dict.fromkeys(content, 3)))


def put_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [cut, change_a_number, change_a_kind, put_a_fifo, lambda path: path.write_text("[")])
def test_a_damaged_file_counts_as_none_and_is_written_anew(
    damage: Callable[[Path], object], path: Path, tiny_folder: TinyFolder, forwards: list[int]
) -> None:
    folder = tiny_folder("qwen3_moe")
    first = needs_of(folder)
    damage(path)
    for _ in range(2):
        assert needs_of(folder) == first
    assert len(forwards) == 2


def test_a_folder_that_cannot_be_written_is_no_error(path: Path, tiny_folder: TinyFolder, forwards: list[int]) -> None:
    path.parent.write_text("a file where the folder should be")
    assert needs_of(tiny_folder("qwen3_moe")) == needs_of(tiny_folder("qwen3_moe"))
    assert len(forwards) == 2


def test_what_was_kept_is_read(path: Path) -> None:
    keep_measured("a", NEEDS)
    assert read_measured("a") == NEEDS
    assert read_measured("b") is None


def test_the_file_stays_small(path: Path) -> None:
    for number in range(MAX_MODELS + 3):
        keep_measured(str(number), NEEDS)
    assert len(json.loads(path.read_text())) == MAX_MODELS
    assert read_measured("2") is None
    assert read_measured("3") == NEEDS


def test_an_impossible_number_of_experts_is_measured_anew(
    tiny_folder: TinyFolder, forwards: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        known_needs, "read_measured", lambda key: MeasuredNeeds((99, 2, 2), False, {64: NEEDS.by_chunk_tok[64]})
    )
    assert needs_of(tiny_folder("qwen3_moe"))[0] == (2, 2, 2)
    assert len(forwards) == 1
