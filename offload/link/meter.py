"""The bandwidth of a link, measured over the time it was busy."""

from __future__ import annotations

import time
from collections import deque

_WINDOW = 32
"""Copies a measurement looks back on."""
_MIN_COPIES = 8
"""Copies a measurement must span to count as the best one: a single lucky read is not a bandwidth."""


class LinkMeter:
    """Counts bytes and busy seconds. `begin` and `end` bracket every copy and are called under the link's lock."""

    __slots__ = ("_best", "_busy_s", "_marks", "_num_active", "_num_single", "_since_s", "bytes_moved", "bytes_per_s")

    def __init__(self) -> None:
        self.bytes_moved = 0
        self.bytes_per_s: float | None = None
        """Over the last 32 copies at most; None before the first."""
        self._best: float | None = None
        self._busy_s = 0.0
        self._num_active = 0
        self._num_single = 0
        self._since_s = 0.0
        self._marks: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=_WINDOW + 1)

    @property
    def best_bytes_per_s(self) -> float | None:
        """The highest bandwidth over at least 8 copies; before there are so many, the current one."""
        return self._best if self._best is not None else self.bytes_per_s

    def begin(self) -> None:
        """A copy starts."""
        if self._num_active == 0:
            self._since_s = time.perf_counter()
        self._num_active += 1

    def end(self, moved_bytes: int, is_single: bool = True) -> None:
        """A copy ends, having moved so many bytes (0: it failed).

        Not `is_single`: several experts were read at once, which is no measure of the best that single ones can have.
        """
        now_s = time.perf_counter()
        self._busy_s += now_s - self._since_s
        self._since_s = now_s
        self._num_active -= 1
        if not moved_bytes:
            return
        self.bytes_moved += moved_bytes
        self._marks.append((self._busy_s, self.bytes_moved))
        self._num_single = self._num_single + 1 if is_single else 0
        first_s, first_bytes = self._marks[0]
        if self._busy_s > first_s:
            self.bytes_per_s = (self.bytes_moved - first_bytes) / (self._busy_s - first_s)
            if _MIN_COPIES < len(self._marks) <= self._num_single + 1:
                self._best = max(self._best or 0.0, self.bytes_per_s)
