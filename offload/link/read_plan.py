"""Which reads of files make an expert, and which experts follow each other in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from offload.direct_file import spare_bytes
from offload.geometry import PAGE_BYTES, page_aligned_bytes

MAX_JOINED_PIECES: Final = 16
"""Pieces of slots that one read of several experts is scattered over."""


class Span(NamedTuple):
    """A run of bytes of one expert: where it lies in a file, and where it goes in the slot."""

    path: str
    file_offset: int
    num_bytes: int
    slot_offset: int


class Read(NamedTuple):
    """One gap-free run of a file, scattered over pieces (slot start, slot end) in file order."""

    path: str
    file_offset: int
    num_bytes: int
    pieces: tuple[tuple[int, int], ...]


class PageRead(NamedTuple):
    """A read of whole pages of a file into as many of a slot, whose first page lies on a page boundary."""

    file_offset: int
    start: int
    """In the slot, as `end`."""
    end: int
    min_bytes: int
    """Up to the last byte that is wanted: the file may end within its last page."""


class ScatteredRead(NamedTuple):
    """One gap-free run of a file, and the memory it goes to."""

    path: str
    file_offset: int
    num_bytes: int
    buffers: list[memoryview]


def plan_reads(spans: tuple[Span, ...]) -> tuple[Read, ...]:
    """Joins spans that follow each other in a file into one read, and in the slot as well into one piece.

    Raises ValueError for a negative span.
    """
    reads: list[Read] = []
    for span in sorted(spans):
        if span.num_bytes < 0 or span.file_offset < 0 or span.slot_offset < 0:
            raise ValueError(f"impossible span: {span}")
        piece = (span.slot_offset, span.slot_offset + span.num_bytes)
        last = reads[-1] if reads else None
        if last and last.path == span.path and last.file_offset + last.num_bytes == span.file_offset:
            *before, (start, end) = last.pieces
            joined = (*before, (start, piece[1])) if end == piece[0] else (*last.pieces, piece)
            reads[-1] = last._replace(num_bytes=last.num_bytes + span.num_bytes, pieces=joined)
        else:
            reads.append(Read(span.path, span.file_offset, span.num_bytes, (piece,)))
    return tuple(reads)


def whole_pages(reads: Sequence[Read]) -> tuple[PageRead, ...]:
    """The reads of an expert with the pages of their ends, where no two of them share a page of the slot and each lies
    in file and slot alike within a page; else nothing."""
    found = []
    for read in reads:
        (start, end), *others = read.pieces
        within = start % PAGE_BYTES
        if others or read.file_offset % PAGE_BYTES != within:
            return ()
        pages = start - within, page_aligned_bytes(end)
        found.append(PageRead(read.file_offset - within, *pages, end - pages[0]))
    by_start = sorted((page.start, page.end) for page in found)
    is_apart = all(end <= start for (_, end), (start, _) in pairwise(by_start))
    return tuple(found) if is_apart else ()


def spare_bytes_of(experts: Iterable[Sequence[Read]]) -> int:
    """The most spare memory that reading one of these experts, or several joined, takes; 0 without any."""
    alone = [spare_bytes([end - start for start, end in read.pieces]) for reads in experts for read in reads]
    return max(*alone, spare_bytes([1 << 20] * MAX_JOINED_PIECES)) if alone else 0


def followers(experts: Sequence[Sequence[Read]]) -> dict[int, int]:
    """By expert of a layer, the one whose every read begins where the expert's own ends, where there is one."""
    starts = {tuple((read.path, read.file_offset) for read in reads): expert for expert, reads in enumerate(experts)}
    ends = [tuple((read.path, read.file_offset + read.num_bytes) for read in reads) for reads in experts]
    return {expert: starts[end] for expert, end in enumerate(ends) if end and starts.get(end, expert) != expert}


def joined(experts: Sequence[Sequence[Read]], destinations: Sequence[memoryview]) -> list[ScatteredRead]:
    """The reads of several experts into a slot each, in the order of the files, joined where they follow each other."""
    found: list[ScatteredRead] = []
    reads = [(read, memory) for reads, memory in zip(experts, destinations, strict=True) for read in reads]
    for read, memory in sorted(reads, key=lambda each: each[0][:2]):
        buffers, last = [memory[start:end] for start, end in read.pieces], found[-1] if found else None
        follows = last and (last.path, last.file_offset + last.num_bytes) == (read.path, read.file_offset)
        if last and follows and len(last.buffers) + len(buffers) <= MAX_JOINED_PIECES:
            found[-1] = last._replace(num_bytes=last.num_bytes + read.num_bytes, buffers=last.buffers + buffers)
        else:
            found.append(ScatteredRead(read.path, read.file_offset, read.num_bytes, buffers))
    return found
