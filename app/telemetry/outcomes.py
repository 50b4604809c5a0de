"""How the routed experts of an answer were served, sample by sample."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from engine.events import Snapshot

MAX_SAMPLES = 256


class Outcomes(NamedTuple):
    """(token, expert) pairs served between two samples. A miss waits for its whole load, a late one for the rest."""

    hits: int
    substituted: int
    late: int
    misses: int

    @property
    def routed(self) -> int:
        """All of them."""
        return sum(self)


class OutcomeHistory:
    """The samples of the answer being written, or of the last one."""

    def __init__(self) -> None:
        self.samples: deque[Outcomes] = deque(maxlen=MAX_SAMPLES)
        self._last = Outcomes(0, 0, 0, 0)

    def see(self, snapshot: Snapshot) -> None:
        """Take in a state. Where counters went back, another answer has begun."""
        counters = snapshot.turn_counters
        total = Outcomes(counters.hits, counters.substituted, counters.late, counters.misses)
        since = Outcomes(*(now - before for now, before in zip(total, self._last, strict=True)))
        if min(since) < 0:
            self.samples.clear()
            since = total
        if since.routed:
            self.samples.append(since)
        self._last = total
