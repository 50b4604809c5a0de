"""Values of a GGUF header as a model's builder reads them: typed, bounded, and recorded."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.metadata import Metadata
from engine.errors import CheckpointError
from tests.unit.engine.checkpoint.gguf.raw_gguf import (
    ARCHITECTURE,
    BOOL,
    F32,
    I32,
    TEXT,
    key,
    listed,
    number,
    text,
    write,
)

KEYS = [
    ARCHITECTURE,
    number("qwen3moe.block_count", 48),
    number("qwen3moe.expert_count", 128),
    key("qwen3moe.rope.freq_base", F32, struct.pack("<f", 5e5)),
    key("qwen3moe.broken", F32, struct.pack("<f", float("nan"))),
    key("flag", BOOL, b"\1"),
    key("name", TEXT, text("a model")),
    listed("ids", I32, 3, struct.pack("<3i", 4, 0, 9)),
    listed("scales", F32, 2, struct.pack("<2f", 0.5, float("inf"))),
    listed("words", TEXT, 2, text("a") + text("b")),
    listed("bad words", TEXT, 1, text(b"\xff")),
]


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return Metadata(read_gguf(write(tmp_path / "a.gguf", KEYS)))


def test_values_of_every_type(metadata: Metadata) -> None:
    assert metadata.integer("{arch}.block_count", 1, 1000) == 48
    assert metadata.number("{arch}.rope.freq_base", 1.0) == 5e5
    assert metadata.number("{arch}.expert_count") == 128.0
    assert metadata.flag("flag")
    assert metadata.text("name") == "a model"
    assert metadata.integers("ids", 0, 9, 3) == [4, 0, 9]
    assert metadata.texts("words") == ["a", "b"]
    assert metadata.integer("gone", 0, 9, default=7) == 7
    assert metadata.text("gone", default="") == ""
    assert not metadata.flag("gone", default=False)


WRONG: list[tuple[Callable[[Metadata], object], str]] = [
    (lambda keys: keys.integer("{arch}.block_count", 1, 40), r"qwen3moe\.block_count is 48, where 1 to 40"),
    (lambda keys: keys.integer("name", 1, 40), "name is 'a model', where a whole number belongs"),
    (lambda keys: keys.integer("flag", 0, 1), "flag is True"),
    (lambda keys: keys.integer("{arch}.gone", 0, 1), r"qwen3moe\.gone is missing"),
    (lambda keys: keys.number("{arch}.broken"), "is nan, where a finite number"),
    (lambda keys: keys.number("{arch}.rope.freq_base", 0, 1), "where 0 to 1 was expected"),
    (lambda keys: keys.number("words"), "a list of 2 values, where a number"),
    (lambda keys: keys.flag("ids"), "ids is a list of 3 values, where true or false"),
    (lambda keys: keys.text("flag"), "flag is True, where text"),
    (lambda keys: keys.integers("ids", 0, 8), "holds 0 to 9, where 0 to 8"),
    (lambda keys: keys.integers("ids", 0, 9, 4), "has 3 values, where 4"),
    (lambda keys: keys.integers("scales", 0, 9), "fractions"),
    (lambda keys: keys.integers("words", 0, 9), "a list of 2 values, where a list of numbers"),
    (lambda keys: keys.numbers("scales"), "not finite"),
    (lambda keys: keys.texts("ids"), "where a list of texts"),
    (lambda keys: keys.texts("words", 1), "has 2 values, where at most 1"),
    (lambda keys: keys.texts("bad words"), "bad words: value 0 is not UTF-8"),
]


@pytest.mark.parametrize(("read", "message"), WRONG)
def test_wrong_values_name_file_and_key(metadata: Metadata, read: Callable[[Metadata], object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        read(metadata)
    assert str(metadata.file.path) in caught.value.message
