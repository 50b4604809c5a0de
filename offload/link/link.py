"""The link between host and device tier: asynchronous copies, demand before prefetch, with its bandwidth measured."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from offload.errors import ExpertReadError
from offload.link.expert_link import DEMAND, PREFETCH, ExpertCopy
from offload.link.expert_source import ExpertSource, PartSource, RunSource
from offload.link.link_copy import POLL_S as POLL_S
from offload.link.link_copy import Copy as Copy
from offload.link.meter import LinkMeter

_MAX_RUN_BYTES = 4 << 20
"""Of experts that are read at once: longer reads are not quicker, the first of them lands later (where three threads
read 16 MiB each, after 30 ms), and they cannot be taken back."""


class Link:
    """Worker threads that copy experts into slots. Thread-safe; a failing copy never takes its thread down.

    Where many demand copies are queued, a thread takes those along that follow the first of them in its file, and reads
    all at once: whole layers are staged in long sequential reads, and the next copies in order are left for others.
    Otherwise the threads share the reads that make one copy, so that copies end one after the other, as soon as can be.
    """

    def __init__(self, source: ExpertSource, num_threads: int = 2, emulated_bytes_per_s: float | None = None) -> None:
        """`emulated_bytes_per_s`: one thread behaves like a bus of that bandwidth (never faster than the real link)."""
        if num_threads < 1 or (emulated_bytes_per_s is not None and emulated_bytes_per_s <= 0):
            raise ValueError("a link needs at least one thread and a positive bandwidth")
        self.emulated_bytes_per_s = emulated_bytes_per_s
        self.num_threads = 1 if emulated_bytes_per_s is not None else num_threads
        self._source = source
        self._runs = source if isinstance(source, RunSource) else None
        self._parts = source if isinstance(source, PartSource) and self.num_threads > 1 else None
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._demand: deque[Copy] = deque()
        self._prefetch: deque[Copy] = deque()
        self._begun: deque[Copy] = deque()
        """Copies with reads that no thread has started."""
        self._active: list[Copy] = []
        self._meter = LinkMeter()
        self._bus_free_s = 0.0
        self._closed = threading.Event()
        count = self.num_threads
        self._threads = [threading.Thread(target=self._work, name=f"link-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> Copy:
        """See ExpertLink."""
        copy = Copy(layer, expert, destination, num_bytes, priority)
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the link is closed")
            (self._prefetch if priority == PREFETCH else self._demand).append(copy)
            self._has_work.notify()
        return copy

    def promote(self, copy: ExpertCopy) -> bool:
        """See ExpertLink."""
        if copy.is_started or copy.priority != PREFETCH:
            return False
        with self._lock:
            own = _take(self._prefetch, copy)
            if own is None:
                return False
            own.priority = DEMAND
            self._demand.append(own)
        return True

    def cancel(self, copy: ExpertCopy) -> bool:
        """See ExpertLink."""
        if copy.is_started:
            return False
        with self._lock:
            own = _take(self._prefetch if copy.priority == PREFETCH else self._demand, copy)
        if own is None:
            return False
        own.finish(0, ExpertReadError("The copy was cancelled before it began."))
        return True

    @property
    def queued(self) -> int:
        """Copies submitted and not started."""
        return len(self._demand) + len(self._prefetch)

    @property
    def bytes_moved(self) -> int:
        """Bytes of all completed copies."""
        return self._meter.bytes_moved

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth over the last copies, counting only the time the link was busy; None before the first."""
        return self._meter.bytes_per_s

    @property
    def best_bytes_per_s(self) -> float | None:
        """The highest bandwidth seen over a run of copies; None before the first."""
        return self._meter.best_bytes_per_s

    def demand_eta_s(self, copy: ExpertCopy) -> float | None:
        """See ExpertLink. Half of what is on the link, the DEMAND queue up to the copy (all of it for a prefetch, which
        would be promoted to its end), and the copy itself, at the measured bandwidth."""
        rate = self._meter.bytes_per_s or self.emulated_bytes_per_s
        if copy.is_done:
            return 0.0
        if rate is None:
            return None
        with self._lock:
            if copy.is_started:
                return copy.num_bytes / 2 / rate
            ahead_bytes = sum(other.num_bytes for other in self._active) / 2
            for other in self._demand:
                if other is copy:
                    break
                ahead_bytes += other.num_bytes
        return (ahead_bytes + copy.num_bytes) / rate

    def close(self) -> None:
        """Stop: queued copies fail, those on the link are finished, the threads are joined. Safe to call twice."""
        with self._lock:
            self._closed.set()
            left = [*self._demand, *self._prefetch]
            self._demand.clear()
            self._prefetch.clear()
            self._has_work.notify_all()
        for copy in left:
            copy.finish(0, ExpertReadError("The link was closed before the expert was copied."))
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while job := self._next():
            run, part = job
            if self._parts is not None and run[0].num_parts > 1:
                self._read_part(self._parts, run[0], part)
                continue
            moved = self._read_run(run)
            for copy, (moved_bytes, error) in zip(run, moved, strict=True):
                bytes_per_s = self.emulated_bytes_per_s  # others may change it meanwhile
                if bytes_per_s is not None:
                    self._occupy_bus(copy, bytes_per_s)
                copy.finish(moved_bytes, error)
            with self._lock:
                for copy in run:
                    self._active.remove(copy)
                self._meter.end(sum(moved_bytes for moved_bytes, _ in moved), is_single=len(run) == 1)

    def _read_part(self, source: PartSource, copy: Copy, part: int) -> None:
        """Does one of the reads that make a copy; the thread that does the last one to end, ends the copy."""
        moved_bytes, error = _outcome(copy, lambda: source.read_part(copy.layer, copy.expert, part, copy.destination))
        with self._lock:
            copy.count_part(moved_bytes, error)
            if copy.open_parts:
                return
            self._active.remove(copy)
            self._meter.end(copy.moved_bytes)
        copy.finish(copy.moved_bytes, copy.error)

    def _read_run(self, run: Sequence[Copy]) -> list[tuple[int, ExpertReadError | None]]:
        """Reads these copies; (bytes moved, why it failed) of each."""
        if self._runs is not None and len(run) > 1:
            with suppress(Exception):  # then one by one, so that the error is that of the copy it belongs to
                experts, destinations = [copy.expert for copy in run], [copy.destination for copy in run]
                return [(num_bytes, None) for num_bytes in self._runs.read_run(run[0].layer, experts, destinations)]
        read_into = self._source.read_into
        return [_outcome(copy, partial(read_into, copy.layer, copy.expert, copy.destination)) for copy in run]

    def _next(self) -> tuple[list[Copy], int] | None:
        """The next copy and those read along with it, started, and which of its reads is next; None when the link is
        closed. What is begun goes first."""
        with self._lock:
            while not (self._begun or self._demand or self._prefetch):
                if self._closed.is_set():
                    return None
                self._has_work.wait()
            if self._begun:
                return [self._begun[0]], self._next_part(self._begun[0])
            run = [(self._demand or self._prefetch).popleft()]
            if self._runs is not None and run[0].priority == DEMAND and self.emulated_bytes_per_s is None:
                run += self._followers(self._runs, run[0])
            for copy in run:
                copy.is_started = True
            self._active += run
            self._meter.begin()
            if self._parts is None or len(run) > 1:
                return run, 0
            run[0].share(self._parts.num_parts(run[0].layer, run[0].expert))
            self._begun.append(run[0])
            return run, self._next_part(run[0])

    def _next_part(self, copy: Copy) -> int:
        """Starts the next read of the copy that was begun first. Call under the lock."""
        part = copy.next_part
        copy.next_part += 1
        if copy.next_part == copy.num_parts:
            self._begun.popleft()
        else:
            self._has_work.notify()
        return part

    def _followers(self, source: RunSource, first: Copy) -> list[Copy]:
        """Takes the copies out of the demand queue that are stored behind `first`: at most this thread's share of what
        is queued. Call under the lock."""
        max_copies = len(self._demand) // self.num_threads
        if not max_copies:
            return []
        queued = {copy.expert: copy for copy in self._demand if copy.layer == first.layer}
        run, num_bytes = [first], first.num_bytes
        while len(run) <= max_copies:
            expert = source.follower(first.layer, run[-1].expert)
            copy = queued.pop(expert, None) if expert is not None else None
            if copy is None or num_bytes + copy.num_bytes > _MAX_RUN_BYTES:
                break
            self._demand.remove(copy)
            run.append(copy)
            num_bytes += copy.num_bytes
        return run[1:]

    def _occupy_bus(self, copy: Copy, bytes_per_s: float) -> None:
        """Sleep until a bus of this bandwidth would be done. Its schedule is absolute, so that errors don't add up."""
        read_end_s = time.perf_counter()
        end_s = max(self._bus_free_s, copy.submitted_s) + copy.num_bytes / bytes_per_s
        self._bus_free_s = max(end_s, read_end_s)
        while (left_s := end_s - time.perf_counter()) > 0 and not self._closed.wait(left_s):
            pass


def _outcome(copy: Copy, read: Callable[[], int]) -> tuple[int, ExpertReadError | None]:
    """(bytes moved, why it failed) of a read for this copy."""
    try:
        return read(), None
    except ExpertReadError as failure:
        return 0, failure
    except Exception as failure:  # noqa: BLE001  # whatever it is, it belongs to this copy
        error = ExpertReadError(f"Cannot read expert {copy.expert} of MoE layer {copy.layer}: {failure!r}.")
        error.__cause__ = failure
        return 0, error


def _take(queue: deque[Copy], copy: ExpertCopy) -> Copy | None:
    """Remove a copy from a queue; None when it is not there. Call under the link's lock."""
    for own in queue:
        if own is copy:
            queue.remove(own)
            return own
    return None
