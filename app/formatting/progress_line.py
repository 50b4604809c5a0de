"""Progress: how fast work goes on, how long the rest will take, and both as one line of text."""

from __future__ import annotations

import time
from collections import deque

from app.formatting import figures
from engine.config import format_bytes
from engine.events import LoadProgress, PrefillProgress, TaskProgress

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


_BAR_WIDTH = 12


def loading(progress: LoadProgress, pace: Pace | None = None) -> str:
    """`reading weights ▰▰▰▱▱ 120 of 270 MiB · 61.0 MB/s · 5 s left`."""
    rest = _pace(pace, progress.unit)
    if progress.unit == "B":
        amount = f"{format_bytes(progress.done)} of {format_bytes(progress.total)}"
    else:
        amount = f"{figures.count(progress.done)} of {figures.count(progress.total)} {progress.unit}".strip()
    if progress.total <= 0:
        return (f"{progress.stage} …" if progress.done <= 0 else f"{progress.stage} … {amount.split(' of ')[0]}") + rest
    return f"{progress.stage}  {figures.bar(progress.done, progress.total, _BAR_WIDTH)}  {amount}{rest}"


def _pace(pace: Pace | None, unit: str) -> str:
    """The rate, where the unit is bytes, and the time left."""
    if pace is None or pace.per_s is None:
        return ""
    rate = f" · {figures.bandwidth(pace.per_s)}" if unit == "B" else ""
    return rate + (f" · {figures.roughly(pace.left_s)} left" if pace.left_s is not None else "")


def prefill(progress: PrefillProgress, pace: Pace | None = None) -> str:
    """`reading the prompt ▰▰▱ 128 of 512 tok, 64 cached · 5 s left`."""
    reused = f", {progress.reused_tok} cached" if progress.reused_tok else ""
    note = f" ({progress.note})" if progress.note else ""
    bar = figures.bar(progress.done_tok, progress.total_tok, _BAR_WIDTH)
    return (
        f"reading the prompt  {bar}  {progress.done_tok} of {progress.total_tok} tok{reused}{note}{_pace(pace, 'tok')}"
    )


def task(progress: TaskProgress) -> str:
    """`comparing ▰▰▱ 12 of 32`."""
    if progress.total <= 0:
        return f"{progress.stage} …"
    bar = figures.bar(progress.done, progress.total, _BAR_WIDTH)
    return f"{progress.stage}  {bar}  {progress.done} of {progress.total}"
