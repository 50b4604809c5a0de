"""The host tier: reads an expert's bytes from the checkpoint's files into a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from offload.direct_file import DirectFile, spare_bytes
from offload.errors import ExpertReadError
from offload.page_memory import page_buffer
from offload.regular_file import why

DIRECT: Final = "direct"
"""What `FileSource.reads` says where no read goes through the page cache."""


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

    path: str
    file_offset: int
    num_bytes: int
    pieces: tuple[tuple[int, int], ...]


class FileSource:
    """Experts in plain files, read straight into slots. Each file is opened once and shared by all threads.

    Reads go past the page cache (see `direct_file`). A run that lies in slot and file alike within a page, in slots
    that begin on a page boundary, is not touched by the processor but for its ends; others are moved into place.
    """

    def __init__(self, spans: Sequence[Sequence[tuple[Span, ...]]]) -> None:
        """`spans[layer][expert]` are the runs that make up an expert, in any order.

        Raises ExpertReadError when a file cannot be opened, ValueError for a negative span.
        """
        self._reads = [[tuple(_plan(expert)) for expert in layer] for layer in spans]
        self._files: dict[str, DirectFile] = {}
        self.bounce_bytes_per_thread = _bounce_bytes(self._reads)
        """Memory that each thread which reads takes beside slots, for the pages at the ends of runs."""
        self._spares: deque[memoryview] = deque()
        """Such memory, not in use: as much as there were ever threads reading at once."""
        try:
            for read in (read for layer in self._reads for expert in layer for read in expert):
                self._open(read.path)
        except BaseException:
            self.close()
            raise

    @property
    def reads(self) -> str:
        """How files are read, for a person: `direct`, or `buffered` with the reason."""
        files = self._files.items()
        refused = [f"{path}: {file.refusal}" for path, file in files if file.refusal is not None]
        if not refused:
            return DIRECT
        share = "" if len(refused) == len(files) else f"{len(refused)} of {len(files)} files "
        return f"{share}buffered ({refused[0]})"

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """See ExpertSource. Writes only the bytes the spans cover; padding in the slot is left as it is."""
        moved_bytes = 0
        try:
            spare = self._spares.pop()
        except IndexError:
            spare = page_buffer(self.bounce_bytes_per_thread)
        try:
            for read in self._reads[layer][expert]:
                moved_bytes += self._read(read, layer, expert, destination, spare)
        finally:
            self._spares.append(spare)
        return moved_bytes

    def _read(self, read: _Read, layer: int, expert: int, destination: memoryview, spare: memoryview) -> int:
        if max(end for _, end in read.pieces) > len(destination):
            raise _error(read.path, layer, expert, f"its bytes do not fit into a slot of {len(destination)} bytes")
        buffers = [destination[start:end] for start, end in read.pieces]
        try:
            return self._files[read.path].read(read.file_offset, buffers, spare)
        except EOFError as error:
            raise _error(read.path, layer, expert, str(error)) from error
        except OSError as error:
            raise _error(read.path, layer, expert, why(error)) from error

    def close(self) -> None:
        """Close every file; reads fail afterwards. Safe to call twice."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        self._reads = []

    def _open(self, path: str) -> None:
        if path in self._files:
            return
        try:
            self._files[path] = DirectFile(path)
            self._files[path].probe()
        except OSError as error:
            hint = "Check that the checkpoint folder is still there and readable, then load the model again."
            raise ExpertReadError(f"Cannot open {path}: {why(error)}.", hint) from error


def bounce_bytes(spans: Iterable[tuple[Span, ...]]) -> int:
    """What `FileSource.bounce_bytes_per_thread` will be for these experts; opens no file."""
    return _bounce_bytes([[tuple(_plan(expert)) for expert in spans]])


def _bounce_bytes(reads: Sequence[Sequence[tuple[_Read, ...]]]) -> int:
    every = (read for layer in reads for expert in layer for read in expert)
    return max((spare_bytes([end - start for start, end in read.pieces]) for read in every), default=0)


def _plan(spans: tuple[Span, ...]) -> list[_Read]:
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
            reads.append(_Read(span.path, span.file_offset, span.num_bytes, (piece,)))
    return reads


def _error(path: str, layer: int, expert: int, reason: str) -> ExpertReadError:
    hint = "The checkpoint changed or the disk failed: check the file (or fetch it again), then load the model again."
    return ExpertReadError(f"Cannot read expert {expert} of MoE layer {layer} from {path}: {reason}.", hint)
