"""The host tier: reads an expert's bytes from the checkpoint's files into a slot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from offload.errors import ExpertReadError
from offload.regular_file import open_regular, read_fully, why


class ExpertSource(Protocol):
    """Anything that can put an expert's bytes into a slot."""

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """Fill `destination` with the expert and return the bytes moved over the link.

        Called from link threads, several at once. Raises ExpertReadError.
        """
        ...


class Span(NamedTuple):
    """A run of bytes of one expert: where it lies in a file, and where it goes in the slot."""

    path: str
    file_offset: int
    num_bytes: int
    slot_offset: int


class _Read(NamedTuple):
    """One gap-free run of a file, scattered over pieces (slot start, slot end) in file order."""

    fd: int
    path: str
    file_offset: int
    num_bytes: int
    pieces: tuple[tuple[int, int], ...]


class FileSource:
    """Experts in plain files, read straight into slots. Each file is opened once and shared by all threads."""

    def __init__(self, spans: Sequence[Sequence[tuple[Span, ...]]]) -> None:
        """`spans[layer][expert]` are the runs that make up an expert, in any order.

        Raises ExpertReadError when a file cannot be opened, ValueError for a negative span.
        """
        self._fds: dict[str, int] = {}
        try:
            self._reads: list[list[tuple[_Read, ...]]] = [
                [tuple(self._plan(expert)) for expert in layer] for layer in spans
            ]
        except BaseException:
            self.close()
            raise

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """See ExpertSource. Writes only the bytes the spans cover; padding in the slot is left as it is."""
        moved_bytes = 0
        for read in self._reads[layer][expert]:
            if max(end for _, end in read.pieces) > len(destination):
                raise _error(read.path, layer, expert, f"its bytes do not fit into a slot of {len(destination)} bytes")
            try:
                moved_bytes += _read(read, destination)
            except EOFError as error:
                raise _error(read.path, layer, expert, str(error)) from error
            except OSError as error:
                raise _error(read.path, layer, expert, error.strerror or str(error)) from error
        return moved_bytes

    def close(self) -> None:
        """Close every file; reads fail afterwards. Safe to call twice."""
        fds, self._fds = self._fds, {}
        self._reads = []
        for fd in fds.values():
            with suppress(OSError):
                os.close(fd)

    def _fd(self, path: str) -> int:
        if path not in self._fds:
            try:
                self._fds[path] = open_regular(path)
            except OSError as error:
                hint = "Check that the checkpoint folder is still there and readable, then load the model again."
                raise ExpertReadError(f"Cannot open {path}: {why(error)}.", hint) from error
        return self._fds[path]

    def _plan(self, spans: tuple[Span, ...]) -> list[_Read]:
        """Join spans that follow each other in a file into one read, and in the slot as well into one piece."""
        reads: list[_Read] = []
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
                reads.append(_Read(self._fd(span.path), span.path, span.file_offset, span.num_bytes, (piece,)))
        return reads


def _read(read: _Read, destination: memoryview) -> int:
    """Raises EOFError when the file ends too early, OSError."""
    return read_fully(read.fd, read.file_offset, [destination[start:end] for start, end in read.pieces])


def _error(path: str, layer: int, expert: int, reason: str) -> ExpertReadError:
    hint = "The checkpoint changed or the disk failed: check the file (or fetch it again), then load the model again."
    return ExpertReadError(f"Cannot read expert {expert} of MoE layer {layer} from {path}: {reason}.", hint)
