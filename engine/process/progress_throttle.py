"""A load's progress at a rate that people can read."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from engine.events import Event, LoadProgress

_PERIOD_S = 0.1


class ProgressThrottle:
    """Lets progress through at a readable rate, and every change of stage."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit, self._stage, self._said_s = emit, "", 0.0

    def __call__(self, progress: LoadProgress) -> None:
        now = monotonic()
        if progress.stage != self._stage or progress.done == progress.total or now - self._said_s > _PERIOD_S:
            self._stage, self._said_s = progress.stage, now
            self._emit(progress)
