"""Where parts of an expert go in a slot."""

from __future__ import annotations

import ctypes
import os
import random
from pathlib import Path

import pytest

from offload.link.expert_source import FileSource, Span
from offload.link.slot_pool import SlotPool
from offload.slot_layout import StoredPart, direct_layout

PAGE = 4096


def test_parts_of_whole_pages_keep_their_place_within_a_page() -> None:
    parts = [StoredPart(3 * PAGE + 96, 2 * PAGE, 2 * PAGE), StoredPart(40 * PAGE, PAGE, PAGE)]
    assert direct_layout(parts) == ((96, 3 * PAGE), 4 * PAGE)


def test_other_parts_begin_their_region() -> None:
    assert direct_layout([(100, 5000, 5000), (64, PAGE, 2 * PAGE)]) == ((0, 2 * PAGE + 64), 4 * PAGE)
    assert direct_layout([(96, PAGE, PAGE), (128, PAGE, PAGE)], alignment=64) == ((0, PAGE + 128), 3 * PAGE)
    assert direct_layout([]) == ((), 0)


@pytest.mark.parametrize(("num_bytes", "moves"), [(3 * PAGE, 0), (3 * PAGE + 128, 1)])
def test_experts_of_a_layer_are_read_straight_where_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int, moves: int
) -> None:
    num_experts, starts = 5, (1056, 1056 + 5 * num_bytes)
    content = random.Random(3).randbytes(starts[1] + num_experts * num_bytes + 77)
    (tmp_path / "weights").write_bytes(content)
    offsets, slot_bytes = direct_layout([(start, num_bytes, num_bytes) for start in starts])

    def spans(expert: int) -> tuple[Span, ...]:
        return tuple(
            Span(str(tmp_path / "weights"), start + expert * num_bytes, num_bytes, offset)
            for start, offset in zip(starts, offsets, strict=True)
        )

    source, pool = FileSource([[spans(expert) for expert in range(num_experts)]]), SlotPool((2,), (slot_bytes,))
    moved, real = [], ctypes.memmove
    monkeypatch.setattr("ctypes.memmove", lambda *how: moved.append(how) or real(*how))
    for expert in range(num_experts):
        assert source.read_into(0, expert, pool.memory(1)) == 2 * num_bytes
        for start, offset in zip(starts, offsets, strict=True):
            stored = content[start + expert * num_bytes : start + (expert + 1) * num_bytes]
            assert bytes(pool.memory(1)[offset : offset + num_bytes]) == stored
    if source.reads == "direct" and hasattr(os, "O_DIRECT"):
        assert (len(moved) > 0) == bool(moves)
    source.close()
