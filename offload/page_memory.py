"""Memory in whole pages: what a direct read can land in, and how it is asked for in large pages."""

from __future__ import annotations

import ctypes
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from offload.geometry import PAGE_BYTES, page_aligned_bytes

_MIN_ADVISED_BYTES: Final = 32 << 20
"""Smaller memory may be a part of the heap, whose other parts would take whole large pages as well."""
_ZEROED_AT_ONCE_BYTES: Final = 64 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)


def address_of(buffer: memoryview) -> int:
    """Where a writable buffer of at least one byte lies in memory."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def page_buffer(num_bytes: int) -> memoryview:
    """Fresh memory of at least `num_bytes`, from a page boundary on; freed with the last view of it."""
    return memoryview(mmap.mmap(-1, max(page_aligned_bytes(num_bytes), PAGE_BYTES)))


def advise_huge_pages(address: int, num_bytes: int) -> None:
    """Asks the system to back this memory, not yet touched, with pages of 2 MiB where it has them.

    A direct read into such memory is one large request to the disk in place of many small ones, and takes half of the
    processor's time. Memory beside the range is left alone; less than 32 MiB, and a system that has no such pages or
    refuses, change nothing.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE") or num_bytes < _MIN_ADVISED_BYTES:
        return
    start = page_aligned_bytes(address)
    length = (address + num_bytes - start) // PAGE_BYTES * PAGE_BYTES
    _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)


def zero_pages(address: int, num_bytes: int) -> None:
    """Writes zeros over this memory, so that all its pages exist, with a thread for every core.

    A virtual machine asks its host for every page that it has not held lately, which takes seconds a GiB on one core.
    """
    pieces = [
        (address + start, min(_ZEROED_AT_ONCE_BYTES, num_bytes - start))
        for start in range(0, num_bytes, _ZEROED_AT_ONCE_BYTES)
    ]
    if len(pieces) < 2:
        ctypes.memset(address, 0, num_bytes)
        return
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda piece: ctypes.memset(piece[0], 0, piece[1]), pieces))
