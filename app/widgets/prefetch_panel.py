"""PREFETCH: did experts come in time, and was fetching ahead worth it."""

from __future__ import annotations

from collections import deque

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading, pairs
from engine.events import Snapshot

_HISTORY = 64


class PrefetchPanel(Panel):
    """Hits, late arrivals and misses of this answer's routed experts; the use of issued prefetches."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(widget_id)
        self._hit_rates: deque[float | None] = deque(maxlen=_HISTORY)
        self._last = (0, 0)

    def observe(self, snapshot: Snapshot) -> None:
        counters = snapshot.turn_counters
        hits, routed = counters.hits - self._last[0], counters.routed - self._last[1]
        if routed < 0:  # another answer has begun
            hits, routed = counters.hits, counters.routed
            self._hit_rates.clear()
        if routed > 0:
            self._hit_rates.append(hits / routed)
        self._last = (counters.hits, counters.routed)

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        counters = snapshot.turn_counters
        routed = counters.routed
        first = [("late", figures.percent(counters.late, routed)), ("miss", figures.percent(counters.misses, routed))]
        first.append(("depth", str(snapshot.prefetch_depth)))
        line = pairs(*first)
        spark = figures.sparkline(list(self._hit_rates), max(0, width - line.cell_length - 2), low=None, high=1.0)
        return [
            heading("PREFETCH", f"hit {figures.share(counters.hits, routed)}", width),
            Content.assemble(line, "  ", (spark, "$exact")),
            pairs(
                ("useful", figures.of(counters.prefetch_useful, counters.prefetch_issued)),
                ("wasted", figures.count(counters.prefetch_wasted)),
                ("cancelled", figures.count(counters.prefetch_cancelled)),
            ),
        ]
