"""What the system's page cache holds of a file: for measurements that must begin, or stay, cold."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from offload.geometry import PAGE_BYTES, page_aligned_bytes
from offload.regular_file import open_regular

_WINDOW_BYTES = 1 << 30
"""Of a file, asked about at once."""


def drop(path: str | os.PathLike[str]) -> None:
    """Writes what was changed to the disk, and asks the system to forget the file's pages.

    Pages that a process has mapped may stay: `cached_bytes` tells. Raises NotRegularFile and OSError.
    """
    fd = open_regular(path)
    try:
        os.fsync(fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def cached_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes of the file's pages that are in memory; of a file of somebody else's, all of them (the system's answer).

    Raises NotRegularFile and OSError.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        return sum(_cached_pages(fd, at, min(_WINDOW_BYTES, size - at)) for at in range(0, size, _WINDOW_BYTES))
    finally:
        os.close(fd)


def _cached_pages(fd: int, offset: int, num_bytes: int) -> int:
    """Bytes. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = np.zeros(page_aligned_bytes(num_bytes) // PAGE_BYTES, dtype=np.uint8)
    with mmap.mmap(fd, num_bytes, prot=mmap.PROT_READ, offset=offset) as mapped:
        view = np.frombuffer(mapped, dtype=np.uint8)
        address, pages = view.ctypes.data, state.ctypes.data
        del view
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(num_bytes), ctypes.c_void_p(pages)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int((state & 1).sum()) * PAGE_BYTES
