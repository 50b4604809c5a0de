"""Files read past the system's page cache, into memory that need not be aligned as the disk wants it.

Small files may be left in the page cache instead: then they are read through it, as any file is.

A direct read (`O_DIRECT`) moves whole pages of a file to page boundaries in memory. The bytes asked for seldom begin or
end there, so that each buffer gets the whole pages that fit into it, and the few pages at its ends go to spare memory,
from which the bytes that are wanted are copied. All pages follow each other in the file: it is one system call. Where a
buffer and its bytes in the file lie differently within a page, the pages land beside their place and are moved, by less
than a page, after the read. Nothing outside the buffers is written.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple

from offload.geometry import PAGE_BYTES, page_aligned_bytes
from offload.page_memory import address_of, page_buffer
from offload.regular_file import MAX_BUFFERS, advance, open_regular, read_fully, why

_O_DIRECT: Final = getattr(os, "O_DIRECT", 0)
_SPARE_PAGES_A_BUFFER: Final = 3
"""The page it begins in, the one it ends in, and one more where it lies differently in file and memory."""


def spare_bytes(lengths: Sequence[int]) -> int:
    """The most spare memory that one read into buffers of these lengths takes."""
    touched = ((length + 2 * (PAGE_BYTES - 1)) // PAGE_BYTES for length in lengths if length)
    return PAGE_BYTES * sum(min(pages, _SPARE_PAGES_A_BUFFER) for pages in touched)


class DirectFile:
    """An open regular file. Reads leave the page cache as it was; threads may share it."""

    def __init__(self, path: str | os.PathLike[str], *, is_cached: bool = False) -> None:
        """`is_cached`: reads go through the page cache, and what was read stays there.

        Raises NotRegularFile, and OSError where the file is missing or may not be read.
        """
        self.is_cached = is_cached
        self.refusal: str | None = None if _O_DIRECT else "this system has no O_DIRECT"
        """Why reads go through the page cache, from which they are dropped afterwards; None: they do not."""
        try:
            self._fd = open_regular(path, 0 if is_cached else _O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._fd = open_regular(path)
            self.refusal = _refusal(error)

    def __enter__(self) -> DirectFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; reads fail afterwards. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def probe(self) -> None:
        """Reads a page, so that `refusal` is known. Raises OSError."""
        if self.refusal is None and not self.is_cached:
            try:
                os.preadv(self._fd, [page_buffer(PAGE_BYTES)], 0)
            except OSError as error:
                self._without_direct(error)

    def read(self, offset: int, buffers: Sequence[memoryview], spare: memoryview | None = None) -> int:
        """Fills the writable buffers, one after the other, with the bytes from `offset` on; returns how many those are.

        `spare` is page-aligned memory of `spare_bytes`, in use by no one else; without it some is allocated. Raises
        EOFError where the file ends before, saying how much is missing, and OSError.
        """
        wanted = [buffer for buffer in buffers if len(buffer)]
        if self.refusal is None and wanted and not self.is_cached:
            try:
                return self._read_direct(offset, wanted, spare)
            except OSError as error:
                self._without_direct(error)
        return self._read_buffered(offset, wanted)

    def read_pages(self, offset: int, pages: memoryview, min_bytes: int) -> int:
        """Fills whole pages of memory, from a page boundary on, with those of the file from `offset` on; returns how
        many bytes came: at least `min_bytes`, and fewer than all where the file ends within them.

        Raises EOFError where it ends before, saying how much is missing, and OSError.
        """
        done = 0
        while done < min_bytes:
            try:
                num_bytes = os.preadv(self._fd, [pages[done:]], offset + done)
            except OSError as error:
                self._without_direct(error)
                continue
            done += num_bytes
            if done < min_bytes and (num_bytes == 0 or num_bytes % PAGE_BYTES):
                raise EOFError(f"the file ends {min_bytes - done} bytes too early")
        self._forget(offset, done)
        return done

    def _read_direct(self, offset: int, buffers: Sequence[memoryview], spare: memoryview | None) -> int:
        needed = spare_bytes([len(buffer) for buffer in buffers])
        landing = _land(offset, buffers, spare if spare is not None and len(spare) >= needed else page_buffer(needed))
        first, end = offset // PAGE_BYTES * PAGE_BYTES, offset + sum(map(len, buffers))
        left, at = landing.pages, first
        while at < end:
            num_bytes = os.preadv(self._fd, left[:MAX_BUFFERS], at)
            at += num_bytes
            if at < end and (num_bytes == 0 or num_bytes % PAGE_BYTES):
                raise EOFError(f"the file ends {end - at} bytes too early")
            advance(left, num_bytes)
        for place, landed, num_bytes in landing.moves:
            ctypes.memmove(place, landed, num_bytes)
        for target, source in landing.ends:
            target[:] = source
        return end - offset

    def _read_buffered(self, offset: int, buffers: Sequence[memoryview]) -> int:
        num_bytes = read_fully(self._fd, offset, buffers)
        self._forget(offset, num_bytes)
        return num_bytes

    def _forget(self, offset: int, num_bytes: int) -> None:
        """Takes what was read out of the page cache, where it went through it and is not to stay."""
        if self.refusal is not None and not self.is_cached and hasattr(os, "posix_fadvise") and num_bytes:
            first, end = offset // PAGE_BYTES * PAGE_BYTES, page_aligned_bytes(offset + num_bytes)
            os.posix_fadvise(self._fd, first, end - first, os.POSIX_FADV_DONTNEED)

    def _without_direct(self, error: OSError) -> None:
        """Goes on without direct reads where that is what `error` asks for; raises it otherwise."""
        if error.errno != errno.EINVAL:
            raise error
        if self.refusal is None:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~_O_DIRECT)
            self.refusal = _refusal(error)


class _Landing(NamedTuple):
    """Where the pages of one read go, and what is done with them afterwards, in this order."""

    pages: list[memoryview]
    """Whole pages of memory, in the order of the file."""
    moves: list[tuple[int, int, int]]
    """(address, address they landed at, number of bytes): the two may overlap."""
    ends: list[tuple[memoryview, memoryview]]
    """(part of a buffer, spare memory of the same length)."""


def _land(offset: int, buffers: Sequence[memoryview], spare: memoryview) -> _Landing:
    landing = _Landing([], [], [])
    page, num_spare = offset // PAGE_BYTES * PAGE_BYTES, 0  # of the file: the next one without a place; in `spare`
    waiting: list[tuple[memoryview, int]] = []  # parts of buffers that lie in pages without a place

    def to_spare(end: int) -> None:
        """Gives the pages up to `end` of the file a place in spare memory."""
        nonlocal num_spare
        if end > page:
            landing.pages.append(spare[num_spare : num_spare + end - page])
        for part, at in waiting:
            source = num_spare + at - page
            landing.ends.append((part, spare[source : source + len(part)]))
        waiting.clear()
        num_spare += end - page

    for buffer in buffers:
        end, address = offset + len(buffer), address_of(buffer)
        inner = page_aligned_bytes(offset)
        place = address + inner - offset
        landed = page_aligned_bytes(place)
        num_bytes = min(end - inner, address + len(buffer) - landed) // PAGE_BYTES * PAGE_BYTES
        if num_bytes > 0:
            waiting.append((buffer[: inner - offset], offset))
            to_spare(inner)
            landing.pages.append(buffer[landed - address : landed - address + num_bytes])
            if landed != place:
                landing.moves.append((place, landed, num_bytes))
            page = inner + num_bytes
            waiting.append((buffer[page - offset :], page))
        else:
            waiting.append((buffer, offset))
        offset = end
    to_spare(max(page_aligned_bytes(offset), page))
    return landing


def _refusal(error: OSError) -> str:
    return f"its file system refuses direct reads: {why(error)}"
