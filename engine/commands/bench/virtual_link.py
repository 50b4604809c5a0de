"""A link without time of its own: copies take what their bytes take at a given bandwidth, on a clock one sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from offload.errors import ExpertReadError
from offload.link.link import DEMAND, PREFETCH, Copy, Link


class VirtualClock:
    """Seconds, moved on by whoever computes or waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """As `perf_counter`."""
        return self.now_s


class VirtualCopy(Copy):
    """A copy that is waited for by moving the clock."""

    __slots__ = ("_virtual", "end_s", "submitted_s")

    def __init__(self, link: VirtualLink, layer: int, expert: int, num_bytes: int, priority: int) -> None:
        super().__init__(link, layer, expert, memoryview(b""), num_bytes, priority)
        self._virtual, self.submitted_s, self.end_s = link, link.clock.now_s, 0.0

    def wait(self, is_cancelled: Callable[[], bool] | None = None) -> float:
        """See Copy; nobody cancels."""
        return self._virtual.wait_for(self)

    def land(self) -> None:
        """It is there."""
        self._finish(self.num_bytes, None)


class VirtualLink(Link):
    """One bus, demand before prefetch, as `Link` with one thread; no thread, no bytes."""

    def __init__(self, clock: VirtualClock, bytes_per_s: float) -> None:
        self.clock, self._rate = clock, bytes_per_s
        self.emulated_bytes_per_s, self.num_threads = bytes_per_s, 1
        self._queues: dict[bool, deque[VirtualCopy]] = {True: deque(), False: deque()}
        """By whether somebody waits for them."""
        self._running: VirtualCopy | None = None
        self._free_s = 0.0

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> Copy:
        """See Link; `destination` is left alone."""
        copy = VirtualCopy(self, layer, expert, num_bytes, priority)
        self._queues[priority != PREFETCH].append(copy)
        self.catch_up()
        return copy

    def promote(self, copy: Copy, priority: int = DEMAND) -> None:
        """See Link."""
        if isinstance(copy, VirtualCopy) and copy in self._queues[False]:
            self._queues[False].remove(copy)
            copy.priority = priority
            self._queues[True].append(copy)

    def cancel(self, copy: Copy) -> bool:
        """See Link."""
        for queue in self._queues.values():
            if isinstance(copy, VirtualCopy) and copy in queue:
                queue.remove(copy)
                copy._finish(0, ExpertReadError("The copy was cancelled before it began."))
                return True
        return False

    @property
    def bytes_per_s(self) -> float | None:
        """The bandwidth given."""
        return self._rate

    def catch_up(self) -> None:
        """Starts and lands what had its time by now."""
        while True:
            if self._running is not None:
                if self._running.end_s > self.clock.now_s:
                    return
                self._free_s = self._running.end_s
                self._running.land()
                self._running = None
            queue = self._queues[True] or self._queues[False]
            if not queue:
                return
            start_s = max(self._free_s, queue[0].submitted_s)
            if start_s > self.clock.now_s:
                return
            self._running = queue.popleft()
            self._running.is_started = True
            self._running.end_s = start_s + self._running.num_bytes / self._rate

    def pass_time(self, seconds: float) -> None:
        """Moves the clock on; what has its time meanwhile starts and lands."""
        self.clock.now_s += seconds
        self.catch_up()

    def wait_for(self, copy: VirtualCopy) -> float:
        """Moves the clock to the landing of a copy; returns the seconds waited."""
        began_s = self.clock.now_s
        while not copy.is_done:
            assert self._running is not None, "what is waited for is queued or running"
            self.clock.now_s = max(self.clock.now_s, self._running.end_s)
            self.catch_up()
        return self.clock.now_s - began_s
