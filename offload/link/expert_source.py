"""The host tier: reads an expert's bytes from the checkpoint's files into a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from typing import Final, Protocol, runtime_checkable

from offload.direct_file import DirectFile
from offload.errors import ExpertReadError
from offload.geometry import PAGE_BYTES
from offload.link.read_plan import Read, Span, followers, joined, plan_reads, spare_bytes_of, whole_pages
from offload.page_memory import address_of, page_buffer
from offload.regular_file import why

__all__ = ["CACHED", "DIRECT", "ExpertSource", "FileSource", "PartSource", "RunSource", "Span", "bounce_bytes"]

DIRECT: Final = "direct"
"""What `FileSource.reads` says where no read goes through the page cache."""
CACHED: Final = "through the page cache, where files so small may stay"
"""What it says where they are meant to."""


class ExpertSource(Protocol):
    """Anything that can put an expert's bytes into a slot."""

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """Fill `destination` with the expert and return the bytes moved over the link.

        Called from link threads, several at once. Raises ExpertReadError.
        """
        ...


@runtime_checkable
class RunSource(ExpertSource, Protocol):
    """A source in which experts follow each other, so that several are read at once sooner than one by one."""

    def follower(self, layer: int, expert: int) -> int | None:
        """The expert of the same layer that is stored right behind this one; None: there is none."""
        ...

    def read_run(self, layer: int, experts: Sequence[int], destinations: Sequence[memoryview]) -> list[int]:
        """As `read_into` for several experts: the bytes moved for each.

        Raises ExpertReadError when one of them cannot be read; what is in the destinations then is not told.
        """
        ...


@runtime_checkable
class PartSource(ExpertSource, Protocol):
    """A source in which an expert is several reads, which threads can share."""

    def num_parts(self, layer: int, expert: int) -> int:
        """How many reads make an expert."""
        ...

    def read_part(self, layer: int, expert: int, part: int, destination: memoryview) -> int:
        """One of them into the expert's `destination`: the bytes moved. Raises ExpertReadError."""
        ...


class FileSource:
    """Experts in plain files, read straight into slots. Each file is opened once and shared by all threads.

    Reads go past the page cache (see `direct_file`). A run that lies in slot and file alike within a page, in slots
    that begin on a page boundary, is not touched by the processor but for its ends; others are moved into place.
    """

    def __init__(
        self, spans: Sequence[Sequence[tuple[Span, ...]]], *, may_fill_pages: bool = False, is_cached: bool = False
    ) -> None:
        """`spans[layer][expert]` are the runs that make up an expert, in any order. `may_fill_pages`: padding of a slot
        that shares a page with a span may be overwritten, which spares reads of their own for the ends of runs.
        `is_cached`: files are read through the page cache and stay there.

        Raises ExpertReadError when a file cannot be opened, ValueError for a negative span.
        """
        self._reads = [[plan_reads(expert) for expert in layer] for layer in spans]
        self._pages = [[whole_pages(expert) if may_fill_pages else () for expert in layer] for layer in self._reads]
        self._followers = [followers(layer) for layer in self._reads]
        self._files: dict[str, DirectFile] = {}
        self._is_cached = is_cached
        every = [expert for layer in self._reads for expert in layer]
        self.bounce_bytes_per_thread = spare_bytes_of(every)
        """Memory that each thread which reads takes beside slots, for the pages at the ends of runs."""
        self._spares: deque[memoryview] = deque()
        """Such memory, not in use: as much as there were ever threads reading at once."""
        try:
            for path in dict.fromkeys(read.path for expert in every for read in expert):
                self._open(path)
        except BaseException:
            self.close()
            raise

    @property
    def reads(self) -> str:
        """How files are read, for a person: `direct`, `CACHED`, or `buffered` with the reason."""
        if self._is_cached:
            return CACHED
        files = self._files.items()
        refused = [f"{path}: {file.refusal}" for path, file in files if file.refusal is not None]
        if not refused:
            return DIRECT
        share = "" if len(refused) == len(files) else f"{len(refused)} of {len(files)} files "
        return f"{share}buffered ({refused[0]})"

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """See ExpertSource. Writes only the bytes the spans cover, and their pages where these may be filled."""
        parts = range(self.num_parts(layer, expert))
        return sum(self.read_part(layer, expert, part, destination) for part in parts)

    def num_parts(self, layer: int, expert: int) -> int:
        """See PartSource."""
        return len(self._reads[layer][expert])

    def read_part(self, layer: int, expert: int, part: int, destination: memoryview) -> int:
        """See PartSource."""
        read, pages = self._reads[layer][expert][part], self._pages[layer][expert]
        self._require_room(read, layer, expert, destination)
        if pages and pages[part].end <= len(destination) and address_of(destination) % PAGE_BYTES == 0:
            file_offset, start, end, min_bytes = pages[part]
            read_pages = methodcaller("read_pages", file_offset, destination[start:end], min_bytes)
            self._read(read.path, layer, expert, read_pages)
            return read.num_bytes
        buffers = [destination[start:end] for start, end in read.pieces]
        with self._spare() as spare:
            return self._read(read.path, layer, expert, methodcaller("read", read.file_offset, buffers, spare))

    def follower(self, layer: int, expert: int) -> int | None:
        """See RunSource."""
        return self._followers[layer].get(expert)

    def read_run(self, layer: int, experts: Sequence[int], destinations: Sequence[memoryview]) -> list[int]:
        """See RunSource. Runs of a file that follow each other are one read."""
        wanted = [self._reads[layer][expert] for expert in experts]
        for expert, reads, destination in zip(experts, wanted, destinations, strict=True):
            for read in reads:
                self._require_room(read, layer, expert, destination)
        with self._spare() as spare:
            for path, file_offset, _, buffers in joined(wanted, destinations):
                self._read(path, layer, experts[0], methodcaller("read", file_offset, buffers, spare))
        return [sum(read.num_bytes for read in reads) for reads in wanted]

    def close(self) -> None:
        """Close every file; reads fail afterwards. Safe to call twice."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        self._reads, self._pages, self._followers = [], [], []

    @contextmanager
    def _spare(self) -> Iterator[memoryview]:
        try:
            spare = self._spares.pop()
        except IndexError:
            spare = page_buffer(self.bounce_bytes_per_thread)
        try:
            yield spare
        finally:
            self._spares.append(spare)

    def _read(self, path: str, layer: int, expert: int, read: Callable[[DirectFile], int]) -> int:
        try:
            return read(self._files[path])
        except EOFError as error:
            raise _error(path, layer, expert, str(error)) from error
        except OSError as error:
            raise _error(path, layer, expert, why(error)) from error

    def _require_room(self, read: Read, layer: int, expert: int, destination: memoryview) -> None:
        if max(end for _, end in read.pieces) > len(destination):
            raise _error(read.path, layer, expert, f"its bytes do not fit into a slot of {len(destination)} bytes")

    def _open(self, path: str) -> None:
        try:
            self._files[path] = DirectFile(path, is_cached=self._is_cached)
            self._files[path].probe()
        except OSError as error:
            hint = "Check that the checkpoint folder is still there and readable, then load the model again."
            raise ExpertReadError(f"Cannot open {path}: {why(error)}.", hint) from error


def bounce_bytes(spans: Iterable[tuple[Span, ...]]) -> int:
    """What `FileSource.bounce_bytes_per_thread` will be for these experts; opens no file."""
    return spare_bytes_of([plan_reads(expert) for expert in spans])


def _error(path: str, layer: int, expert: int, reason: str) -> ExpertReadError:
    hint = "The checkpoint changed or the disk failed: check the file (or fetch it again), then load the model again."
    return ExpertReadError(f"Cannot read expert {expert} of MoE layer {layer} from {path}: {reason}.", hint)
