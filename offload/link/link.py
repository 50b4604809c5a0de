"""The link between host and device tier: asynchronous copies, demand before prefetch, with its bandwidth measured."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from offload.errors import ExpertReadError, WaitCancelled
from offload.link.expert_source import ExpertSource
from offload.link.meter import LinkMeter

DEMAND: Final = 0
"""Somebody waits for it."""
PREFETCH: Final = 1
"""Behind everything that somebody waits for."""
PREFILL: Final = 2
"""Queued like DEMAND, counted apart."""

POLL_S = 0.02
"""How often a wait looks whether it was cancelled."""


class Copy:
    """One expert on its way. Written by the link; `is_done` is set last, and after it nothing changes any more."""

    __slots__ = (
        *("layer", "expert", "num_bytes", "moved_bytes", "priority", "is_started", "is_done", "error"),
        *("_link", "_destination", "_submitted_s", "_landed"),
    )

    def __init__(
        self, link: Link, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int
    ) -> None:
        """Made by `Link.submit`."""
        self.layer = layer
        self.expert = expert
        self.num_bytes = num_bytes
        """Bytes of the slot, which an emulated link charges for."""
        self.moved_bytes = 0
        """Bytes moved, once done."""
        self.priority = priority
        """DEMAND, PREFETCH or PREFILL; fixed once started."""
        self.is_started = False
        self.is_done = False
        """Landed, failed or cancelled."""
        self.error: ExpertReadError | None = None
        self._link = link
        self._destination = destination
        self._submitted_s = time.perf_counter()
        self._landed = threading.Lock()
        self._landed.acquire()

    def wait(self, is_cancelled: Callable[[], bool] | None = None) -> float:
        """Wait until done and return the seconds waited, 0.0 if it was done already.

        Raises ExpertReadError when the copy failed, and WaitCancelled soon after `is_cancelled()` turns true (the copy
        itself goes on).
        """
        if self.is_done:
            if self.error is not None:
                raise self.error
            return 0.0
        start_s = time.perf_counter()
        while not self._landed.acquire(timeout=POLL_S if is_cancelled is not None else -1):
            if is_cancelled is not None and is_cancelled():
                raise WaitCancelled("Stopped while waiting for an expert.")
        self._landed.release()
        if self.error is not None:
            raise self.error
        return time.perf_counter() - start_s

    def eta_s(self) -> float | None:
        """Rough seconds until done, from the place in the queue and the bandwidth; None before any was measured."""
        return 0.0 if self.is_done else self._link.eta_s(self)

    def _finish(self, moved_bytes: int, error: ExpertReadError | None) -> None:
        self.moved_bytes = moved_bytes
        self.error = error
        self.is_done = True
        self._landed.release()


class Lease(NamedTuple):
    """The right to read a slot until the layer is released."""

    slot: int
    copy: Copy | None
    """None: the expert is there. Else: wait for it first."""


class Link:
    """Worker threads that copy experts into slots. Thread-safe; a failing copy never takes its thread down."""

    def __init__(self, source: ExpertSource, num_threads: int = 2, emulated_bytes_per_s: float | None = None) -> None:
        """`emulated_bytes_per_s`: one thread behaves like a bus of that bandwidth (never faster than the real link)."""
        if num_threads < 1 or (emulated_bytes_per_s is not None and emulated_bytes_per_s <= 0):
            raise ValueError("a link needs at least one thread and a positive bandwidth")
        self.emulated_bytes_per_s = emulated_bytes_per_s
        self.num_threads = 1 if emulated_bytes_per_s is not None else num_threads
        self._source = source
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._is_idle = threading.Condition(self._lock)
        self._demand: deque[Copy] = deque()
        self._prefetch: deque[Copy] = deque()
        self._active: list[Copy] = []
        self._meter = LinkMeter()
        self._bus_free_s = 0.0
        self._closed = threading.Event()
        count = self.num_threads
        self._threads = [threading.Thread(target=self._work, name=f"link-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> Copy:
        """Queue a copy of an expert into `destination`. Raises RuntimeError on a closed link."""
        copy = Copy(self, layer, expert, destination, num_bytes, priority)
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the link is closed")
            (self._prefetch if priority == PREFETCH else self._demand).append(copy)
            self._has_work.notify()
        return copy

    def promote(self, copy: Copy, priority: int = DEMAND) -> None:
        """Move a queued prefetch to the end of the demand queue. No effect on a copy that has started."""
        if copy.is_started or copy.priority != PREFETCH:
            return
        with self._lock:
            if copy in self._prefetch:
                self._prefetch.remove(copy)
                copy.priority = priority
                self._demand.append(copy)

    def cancel(self, copy: Copy) -> bool:
        """Take a copy out of the queue. True: it had not started and never will; its destination is untouched."""
        if copy.is_started:
            return False
        with self._lock:
            queue = self._prefetch if copy.priority == PREFETCH else self._demand
            if copy not in queue:
                return False
            queue.remove(copy)
            self._is_idle.notify_all()
        copy._finish(0, ExpertReadError("The copy was cancelled before it began."))
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

    def eta_s(self, copy: Copy) -> float | None:
        """Rough seconds until `copy` is done: half of what is on the link, all that is queued before it, and itself."""
        rate = self._meter.bytes_per_s or self.emulated_bytes_per_s
        if rate is None:
            return None
        with self._lock:
            if copy.is_started:
                return copy.num_bytes / 2 / rate
            ahead_bytes = sum(other.num_bytes for other in self._active) / 2
            for other in (*self._demand, *self._prefetch):
                ahead_bytes += other.num_bytes
                if other is copy:
                    break
        return ahead_bytes / rate

    def drain(self) -> None:
        """Wait until nothing is queued and nothing on the link."""
        with self._lock:
            while self._demand or self._prefetch or self._active:
                self._is_idle.wait()

    def close(self) -> None:
        """Stop: queued copies fail, those on the link are finished, the threads are joined. Safe to call twice."""
        with self._lock:
            self._closed.set()
            left = [*self._demand, *self._prefetch]
            self._demand.clear()
            self._prefetch.clear()
            self._has_work.notify_all()
            self._is_idle.notify_all()
        for copy in left:
            copy._finish(0, ExpertReadError("The link was closed before the expert was copied."))
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (copy := self._next()) is not None:
            moved_bytes, error = 0, None
            try:
                moved_bytes = self._source.read_into(copy.layer, copy.expert, copy._destination)
            except ExpertReadError as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001  # whatever it is, it belongs to this copy
                error = ExpertReadError(f"Cannot read expert {copy.expert} of MoE layer {copy.layer}: {failure!r}.")
                error.__cause__ = failure
            bytes_per_s = self.emulated_bytes_per_s  # others may change it meanwhile
            if bytes_per_s is not None:
                self._occupy_bus(copy, bytes_per_s)
            copy._finish(moved_bytes, error)
            with self._lock:
                self._active.remove(copy)
                self._meter.end(moved_bytes)
                if not self._active:
                    self._is_idle.notify_all()

    def _next(self) -> Copy | None:
        """The next copy, started; None when the link is closed."""
        with self._lock:
            while not (self._demand or self._prefetch):
                if self._closed.is_set():
                    return None
                self._has_work.wait()
            copy = (self._demand or self._prefetch).popleft()
            copy.is_started = True
            self._active.append(copy)
            self._meter.begin()
        return copy

    def _occupy_bus(self, copy: Copy, bytes_per_s: float) -> None:
        """Sleep until a bus of this bandwidth would be done. Its schedule is absolute, so that errors don't add up."""
        read_end_s = time.perf_counter()
        end_s = max(self._bus_free_s, copy._submitted_s) + copy.num_bytes / bytes_per_s
        self._bus_free_s = max(end_s, read_end_s)
        while (left_s := end_s - time.perf_counter()) > 0 and not self._closed.wait(left_s):
            pass
