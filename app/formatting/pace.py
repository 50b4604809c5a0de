"""The rate of a piece of work, and the time left."""

from __future__ import annotations

import time
from collections import deque

_WINDOW_S = 10.0
_GAP_S = 5.0
"""Reports further apart than this were interrupted: the machine was suspended, or the app was stopped."""
_ENOUGH_S = 0.5
"""The shortest time that a rate is computed from."""


class Pace:
    """The rate over the last ten seconds. Gaps between reports of more than five seconds do not count."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def note(self, done: float, total: float, now: float | None = None) -> None:
        """Record that `done` of `total` is done, at `now` seconds. A smaller `done` than before starts over."""
        now = time.monotonic() if now is None else now
        if self._reports and (done < self._reports[-1][1] or now - self._reports[-1][0] > _GAP_S):
            self._reports.clear()
        self._total = total
        self._reports.append((now, done))
        while now - self._reports[0][0] > _WINDOW_S:
            self._reports.popleft()

    @property
    def per_s(self) -> float | None:
        """Units a second; None while there are too few reports."""
        if not self._reports:
            return None
        (began, first), (ended, last) = self._reports[0], self._reports[-1]
        return (last - first) / (ended - began) if ended - began >= _ENOUGH_S and last > first else None

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done at this rate; None while the rate is unknown."""
        rate = self.per_s
        return (self._total - self._reports[-1][1]) / rate if rate and self._total else None
