"""The system's page cache of a file: emptied, and looked at."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_LITTLE = 0.01
_PART = re.compile(r"^(.*)-\d{5}-of-(\d{5})\.gguf$")


def files_of_model(path: Path) -> tuple[Path, ...]:
    """A GGUF file, or all parts of a split one."""
    part = _PART.match(path.name)
    if part is None:
        return (path,)
    return tuple(sorted(path.parent.glob(f"{part[1]}-*-of-{part[2]}.gguf")))


def make_cold(paths: tuple[Path, ...]) -> float:
    """Asks the system to forget the files; where it keeps more than a hundredth and we are root, to forget every file.
    Returns the share that stays in memory. Raises OSError."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())  # what is not written yet cannot be forgotten
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(paths) > _LITTLE:
        with suppress(OSError):
            _DROP_CACHES.write_text("1")
    return cached_share(paths)


def cached_share(paths: tuple[Path, ...]) -> float:
    """The share of the files' pages that is in memory, by `mincore`. Raises OSError."""
    num_pages = sum(-(-path.stat().st_size // mmap.PAGESIZE) for path in paths)
    return sum(map(_cached_pages, paths)) / max(num_pages, 1)


def _cached_pages(path: Path) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
    library.mmap.argtypes = [pointer, size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.munmap.argtypes = [pointer, size_t]
    library.mincore.argtypes = [pointer, size_t, pointer]
    size = path.stat().st_size
    if size == 0:
        return 0
    with path.open("rb") as file:
        address = library.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"{path} cannot be mapped")
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    try:
        if library.mincore(address, size, pages) != 0:
            raise OSError(ctypes.get_errno(), f"mincore fails on {path}")
    finally:
        library.munmap(address, size)
    return sum(byte & 1 for byte in pages.raw)
