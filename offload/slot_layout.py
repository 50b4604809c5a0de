"""Where the parts of an expert go in a slot, so that as much as possible is read straight into place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from offload.geometry import PAGE_BYTES, page_aligned_bytes


class StoredPart(NamedTuple):
    """One part of every expert of a layer, as files hold it."""

    file_offset: int
    """Of the first expert's."""
    num_bytes: int
    """Of one expert's."""
    stride: int
    """Bytes from one expert's to the next one's."""


def direct_layout(parts: Sequence[tuple[int, int, int]], alignment: int = 1) -> tuple[tuple[int, ...], int]:
    """The parts' offsets in a slot, and the slot's bytes: whole pages, and a region of whole pages for each part.

    A part whose stride is whole pages lies in the slot as in the file within a page, for every expert: it is read
    straight into place. Where the stride is not, or where it would lie at no multiple of `alignment`, it begins at its
    region's first byte, and is moved there after the read. `parts` are `StoredPart`s, or tuples like them.
    """
    offsets, region = [], 0
    for file_offset, num_bytes, stride in parts:
        within = file_offset % PAGE_BYTES
        if stride % PAGE_BYTES or within % alignment:
            within = 0
        offsets.append(region + within)
        region += page_aligned_bytes(within + num_bytes)
    return tuple(offsets), region
