"""Measures the link's bandwidth by reading experts of a checkpoint, without loading the model."""

from __future__ import annotations

import random
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from engine.checkpoint.gguf.header import GgufFile, read_gguf
from engine.checkpoint.gguf.location import is_gguf
from engine.checkpoint.index import TensorEntry, read_index
from offload import page_cache
from offload.errors import WaitCancelled
from offload.link.expert_link import DEMAND
from offload.link.expert_source import DIRECT, FileSource, Span
from offload.link.link import Copy, Link
from offload.link.slot_pool import SlotPool

_EXPERT = re.compile(r"(.*\.experts\.\d+)\.")
_FUSED = re.compile(r"(.*\.experts)\.")
_GGUF = re.compile(r"(blk\.\d+)\.ffn_(?:gate|up|down|gate_up)_exps\.weight")
_SEED = 7
_TRIAL_S = 0.6
_MAX_BYTES = 512 << 20
"""The most that is read."""


class LinkTrial(NamedTuple):
    """Experts that were read as the engine reads them, not counting what was in the file cache before."""

    num_bytes: int
    bytes_per_s: float
    reads: str
    """`direct`, or `buffered` with the reason."""


def try_link(model: Path, num_threads: int, is_cancelled: Callable[[], bool]) -> LinkTrial | None:
    """Copies randomly chosen experts for about a second; None where the checkpoint names none.

    Raises CheckpointError, ExpertReadError, WaitCancelled.
    """
    found = gguf_spans(read_gguf(model)) if is_gguf(model) else expert_spans(read_index(model).values())
    if not found:
        return None
    random.Random(_SEED).shuffle(found)
    experts = found[: max(_MAX_BYTES // _size(found[0]), 1)]
    sizes = [_size(spans) for spans in experts]
    pool = SlotPool((2 * num_threads,), (max(sizes),))
    slots = [pool.memory(slot) for slot in range(pool.num_slots)]
    with closing(FileSource([experts])) as source, closing(Link(source, num_threads)) as link:
        if source.reads != DIRECT:
            for path in sorted({span.path for spans in experts for span in spans}):
                page_cache.drop(path)
        num_read, bytes_per_s = _read(link, slots, sizes, is_cancelled)
        return LinkTrial(sum(sizes[:num_read]), bytes_per_s, source.reads)


def _size(spans: tuple[Span, ...]) -> int:
    return sum(span.num_bytes for span in spans)


def expert_spans(entries: Iterable[TensorEntry]) -> list[tuple[Span, ...]]:
    """The runs of bytes of every expert, stored as tensors of its own or as rows of fused ones."""
    parts: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for entry in entries:
        if not entry.num_bytes:
            continue
        if found := _EXPERT.match(entry.key):
            parts[found[1]].append((entry.path, entry.file_offset, entry.num_bytes))
        elif (found := _FUSED.match(entry.key)) and len(entry.shape) > 1:
            row_bytes = entry.num_bytes // entry.shape[0]
            for row in range(entry.shape[0]):
                parts[f"{found[1]}.{row}"].append((entry.path, entry.file_offset + row * row_bytes, row_bytes))
    return [_placed(runs) for runs in parts.values()]


def gguf_spans(file: GgufFile) -> list[tuple[Span, ...]]:
    """The runs of bytes of every expert of a GGUF model: a row in each of a layer's tensors of experts."""
    parts: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for tensor in file.tensors.values():
        if (found := _GGUF.match(tensor.name)) and len(tensor.shape) > 1:
            num_experts = tensor.shape[-1]
            row_bytes = tensor.num_bytes // num_experts
            for row in range(num_experts):
                place = (str(tensor.path), tensor.file_offset + row * row_bytes, row_bytes)
                parts[f"{found[1]}.{row}"].append(place)
    return [_placed(runs) for runs in parts.values()]


def _placed(runs: list[tuple[str, int, int]]) -> tuple[Span, ...]:
    spans, offset = [], 0
    for path, file_offset, num_bytes in runs:
        spans.append(Span(path, file_offset, num_bytes, offset))
        offset += num_bytes
    return tuple(spans)


def _read(link: Link, slots: list[memoryview], sizes: list[int], is_cancelled: Callable[[], bool]) -> tuple[int, float]:
    """Keeps one copy per slot in flight until the time is up; returns (experts read, bytes per second)."""
    on_way: deque[Copy] = deque()
    start_s, number = perf_counter(), 0
    while number < len(sizes) and perf_counter() - start_s < _TRIAL_S:
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        if len(on_way) == len(slots):
            on_way.popleft().wait(is_cancelled)
        on_way.append(link.submit(0, number, slots[number % len(slots)], sizes[number], DEMAND))
        number += 1
    for copy in on_way:
        copy.wait(is_cancelled)
    return number, sum(sizes[:number]) / (perf_counter() - start_s)
