"""How long answers took, by the events about them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from engine.events import CANCELLED, Event, Failed, PrefillProgress, TextDelta, TurnEnded


class AnswerEnd(NamedTuple):
    """An answer that ended by itself, whole, cut or by an error."""

    took_s: float
    """From the beginning of its prompt."""
    has_failed: bool

    @property
    def words(self) -> str:
        """`The answer is there, after 41 s.`"""
        what = "The answer has failed" if self.has_failed else "The answer is there"
        return f"{what}, after {self.took_s:.0f} s."


class AnswerClock:
    """Notes when answers begin and end."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._begun_at: dict[int, float] = {}

    def note(self, events: Iterable[Event]) -> list[AnswerEnd]:
        """Take in events; returns the answers that ended with them. One that the user stopped is left out."""
        ends = []
        for event in events:
            if isinstance(event, PrefillProgress | TextDelta):
                if event.request_id not in self._begun_at:
                    self._begun_at[event.request_id] = self.now()
            elif isinstance(event, TurnEnded | Failed) and event.request_id is not None:
                begun_at = self._begun_at.pop(event.request_id, None)
                is_stopped = isinstance(event, TurnEnded) and event.reason == CANCELLED
                if begun_at is not None and not is_stopped:
                    has_failed = isinstance(event, Failed) or event.failure is not None
                    ends.append(AnswerEnd(self.now() - begun_at, has_failed))
        return ends
