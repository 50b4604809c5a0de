"""A copy on a link between host and device tier, from its submission to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from offload.errors import ExpertReadError, WaitCancelled

POLL_S = 0.02
"""How often a wait looks whether it was cancelled."""


class Copy:
    """An ExpertCopy of a Link, written by its threads. `is_done` is set last; nothing changes after that."""

    __slots__ = (
        *("layer", "expert", "num_bytes", "moved_bytes", "priority", "is_started", "is_done", "error"),
        *("destination", "submitted_s", "num_parts", "next_part", "open_parts", "_landed"),
    )

    def __init__(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> None:
        """Made by `Link.submit`."""
        self.layer = layer
        self.expert = expert
        self.num_bytes = num_bytes
        """Bytes of the slot: the size an emulated link charges for."""
        self.moved_bytes = 0
        """Bytes moved, once done."""
        self.priority = priority
        """DEMAND or PREFETCH; fixed once started."""
        self.is_started = False
        self.is_done = False
        """Landed, failed or cancelled."""
        self.error: ExpertReadError | None = None
        self.destination = destination
        self.submitted_s = time.perf_counter()
        self.num_parts, self.next_part, self.open_parts = 1, 0, 1
        """Reads that make the copy; the next one to be started; those that have not ended. Under the link's lock."""
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

    def share(self, num_parts: int) -> None:
        """It is made of so many reads, by any thread in any order."""
        self.num_parts = self.open_parts = num_parts

    def count_part(self, moved_bytes: int, error: ExpertReadError | None) -> None:
        """One of its reads has ended; the copy fails with the first that failed."""
        self.open_parts -= 1
        self.moved_bytes += moved_bytes
        self.error = self.error or error

    def finish(self, moved_bytes: int, error: ExpertReadError | None) -> None:
        """Ends the copy: called once, by the link."""
        self.moved_bytes = moved_bytes
        self.error = error
        self.is_done = True
        self._landed.release()
