"""Links without threads, over which no bytes move: copies land when they are waited for, or on a virtual clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from offload.errors import ExpertReadError
from offload.geometry import Geometry
from offload.link.expert_link import DEMAND, PREFETCH, ExpertCopy


class VirtualCopy:
    """An ExpertCopy of a link below."""

    __slots__ = (
        *("layer", "expert", "num_bytes", "moved_bytes", "priority", "is_started", "is_done", "error"),
        *("_link", "end_s", "submitted_s"),
    )

    def __init__(self, link: StillLink, layer: int, expert: int, num_bytes: int, priority: int) -> None:
        self.layer, self.expert, self.num_bytes, self.priority = layer, expert, num_bytes, priority
        self.moved_bytes = 0
        self.is_started = self.is_done = False
        self.error: ExpertReadError | None = None
        self.submitted_s = self.end_s = 0.0
        self._link = link

    def wait(self, is_cancelled: Callable[[], bool] | None = None) -> float:
        """See ExpertCopy; ignores `is_cancelled`."""
        if self.error is not None:
            raise self.error
        return 0.0 if self.is_done else self._link.wait_for(self)

    def finish(self, error: ExpertReadError | None = None) -> None:
        """The copy has landed, or failed."""
        self.moved_bytes, self.error, self.is_done = 0 if error else self.num_bytes, error, True


class StillLink:
    """An ExpertLink without time: a copy lands when it is waited for, a prefetch when `land` says so. A copy has the
    geometry's bytes, whatever memory it is given."""

    bytes_per_s: float | None = None

    def __init__(self, geometry: Geometry) -> None:
        self._expert_bytes = [layer.expert_bytes for layer in geometry.layers]
        self._queues: dict[int, deque[VirtualCopy]] = {DEMAND: deque(), PREFETCH: deque()}

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> VirtualCopy:
        """See ExpertLink; `destination` is not written."""
        copy = VirtualCopy(self, layer, expert, self._expert_bytes[layer], priority)
        self._queues[priority].append(copy)
        return copy

    def promote(self, copy: ExpertCopy) -> bool:
        """See ExpertLink."""
        own = self._take(copy) if copy.priority == PREFETCH else None
        if own is None:
            return False
        own.priority = DEMAND
        self._queues[DEMAND].append(own)
        return True

    def cancel(self, copy: ExpertCopy) -> bool:
        """See ExpertLink."""
        own = self._take(copy)
        if own is None:
            return False
        own.finish(ExpertReadError("The copy was cancelled before it began."))
        return True

    def _take(self, copy: ExpertCopy) -> VirtualCopy | None:
        """Remove a copy from its queue; None when it is in none."""
        queue = self._queues[copy.priority]
        own = next((queued for queued in queue if queued is copy), None)
        if own is not None:
            queue.remove(own)
        return own

    def demand_eta_s(self, copy: ExpertCopy) -> float | None:
        """See ExpertLink; not known."""
        return None

    def wait_for(self, copy: VirtualCopy) -> float:
        """Lands a queued copy; returns the seconds waited."""
        self._queues[copy.priority].remove(copy)
        copy.finish()
        return 0.0

    def land(self, num_copies: int) -> None:
        """Lands the first prefetches of the queue."""
        for copy in list(self._queues[PREFETCH])[: max(num_copies, 0)]:
            self.wait_for(copy)


class VirtualClock:
    """Seconds; advanced by the code that computes or waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """As `perf_counter`."""
        return self.now_s


class VirtualLink(StillLink):
    """One bus on a virtual clock, demand before prefetch, as `Link` with one thread: a copy takes its bytes over a
    given bandwidth, and waiting for it advances the clock."""

    def __init__(self, clock: VirtualClock, bytes_per_s: float, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.clock = clock
        self.bytes_per_s: float = bytes_per_s
        self._running: VirtualCopy | None = None
        self._free_s = 0.0

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> VirtualCopy:
        """See ExpertLink."""
        copy = super().submit(layer, expert, destination, num_bytes, priority)
        copy.submitted_s = self.clock.now_s
        self.catch_up()
        return copy

    def demand_eta_s(self, copy: ExpertCopy) -> float | None:
        """See ExpertLink; exact."""
        if copy.is_done:
            return 0.0
        running_s = self._running.end_s - self.clock.now_s if self._running is not None else 0.0
        if copy is self._running:
            return running_s
        ahead_bytes = 0
        for other in self._queues[DEMAND]:
            if other is copy:
                break
            ahead_bytes += other.num_bytes
        return running_s + (ahead_bytes + copy.num_bytes) / self.bytes_per_s

    def catch_up(self) -> None:
        """Starts and ends the copies that are due by now."""
        while True:
            if self._running is not None:
                if self._running.end_s > self.clock.now_s:
                    return
                self._free_s = self._running.end_s
                self._running.finish()
                self._running = None
            queue = self._queues[DEMAND] or self._queues[PREFETCH]
            if not queue:
                return
            start_s = max(self._free_s, queue[0].submitted_s)
            if start_s > self.clock.now_s:
                return
            self._running = queue.popleft()
            self._running.is_started = True
            self._running.end_s = start_s + self._running.num_bytes / self.bytes_per_s

    def pass_time(self, seconds: float) -> None:
        """Advances the clock; copies due meanwhile start and end."""
        self.clock.now_s += seconds
        self.catch_up()

    def wait_for(self, copy: VirtualCopy) -> float:
        """Advances the clock to the end of a copy; returns the seconds waited."""
        began_s = self.clock.now_s
        while not copy.is_done:
            assert self._running is not None, "a copy that is waited for is queued or running"
            self.clock.now_s = max(self.clock.now_s, self._running.end_s)
            self.catch_up()
        return self.clock.now_s - began_s
