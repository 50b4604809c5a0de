"""How the routed experts of an answer were served, look by look."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from engine.events import Snapshot

MAX_LOOKS = 256


class Outcomes(NamedTuple):
    """(token, expert) pairs served between two looks. A miss is waited for from its beginning, a late one only for the
    rest of its copy."""

    hits: int
    substituted: int
    late: int
    misses: int

    @property
    def routed(self) -> int:
        """All of them."""
        return sum(self)


class OutcomeHistory:
    """The looks of the answer being written, or of the last one."""

    def __init__(self) -> None:
        self.looks: deque[Outcomes] = deque(maxlen=MAX_LOOKS)
        self._last = Outcomes(0, 0, 0, 0)

    def see(self, snapshot: Snapshot) -> None:
        """Take in a state. Where counters went back, another answer has begun."""
        counters = snapshot.turn_counters
        total = Outcomes(counters.hits, counters.substituted, counters.late, counters.misses)
        since = Outcomes(*(now - before for now, before in zip(total, self._last, strict=True)))
        if min(since) < 0:
            self.looks.clear()
            since = total
        if since.routed:
            self.looks.append(since)
        self._last = total
