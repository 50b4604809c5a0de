"""How fast work goes on, and how long the rest will take."""

from __future__ import annotations

import time
from collections import deque

_WINDOW_S = 10.0
_GAP_S = 5.0
"""Between two reports of work that goes on nothing lasts so long: the machine slept, or the app was stopped."""
_ENOUGH_S = 0.5


class Pace:
    """The rate of one kind of work over the last ten seconds. Time in which nobody could look does not count."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def note(self, done: float, total: float, now: float | None = None) -> None:
        """`done` of `total` is done. A smaller number than before begins anew."""
        now = time.monotonic() if now is None else now
        if self._reports and (done < self._reports[-1][1] or now - self._reports[-1][0] > _GAP_S):
            self._reports.clear()
        self._total = total
        self._reports.append((now, done))
        while now - self._reports[0][0] > _WINDOW_S:
            self._reports.popleft()

    @property
    def per_s(self) -> float | None:
        """The rate; None until there is something to measure."""
        if not self._reports:
            return None
        (began, first), (ended, last) = self._reports[0], self._reports[-1]
        return (last - first) / (ended - began) if ended - began >= _ENOUGH_S and last > first else None

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done at this rate; None while it cannot be said."""
        rate = self.per_s
        return (self._total - self._reports[-1][1]) / rate if rate and self._total else None
