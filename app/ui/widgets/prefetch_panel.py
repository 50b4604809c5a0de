"""PREFETCH: did experts come in time, and was fetching ahead worth it."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.ui.widgets.charts import Part, key_of, stacked
from app.ui.widgets.panel import Panel, heading, outcomes, pair, pairs, shares, wrapped
from engine.events import Snapshot

_PARTS = (
    Part("hit", "$exact", "█"),
    Part("subst", "$approx", "≈"),
    Part("late", "$accent", "▒"),
    Part("miss", "$error", "·"),
)
"""In the order of `Outcomes`, from the bottom of a column up."""

_CHART_ROWS = 2


class PrefetchPanel(Panel):
    """How this answer's routed experts were served, over time and in all; the use of issued prefetches."""

    TITLE: ClassVar[str] = "PREFETCH"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("hit", "late", "miss", "useful", "depth")

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        counters = snapshot.turn_counters
        return [
            self._heading(snapshot, width),
            *self._chart(width, _CHART_ROWS),
            *wrapped(
                [
                    *self._key(snapshot)[2:],
                    pair("depth", f"{snapshot.prefetch_depth} now"),
                    pair("useful", figures.of(counters.prefetch_useful, counters.prefetch_issued)),
                    pair(
                        "wasted", figures.count(counters.prefetch_wasted) if counters.prefetch_issued else figures.DASH
                    ),
                ],
                width,
            ),
        ]

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        served, used = self._served(snapshot), self._used(snapshot)
        chart_rows = max(_CHART_ROWS, min(16, height - len(served) - len(used) - 7))
        return [
            self._heading(snapshot, width),
            Content(""),
            *self._chart(width, chart_rows),
            *wrapped(self._key(snapshot), width),
            Content(""),
            *served,
            Content(""),
            *used,
            *pairs(width, ("depth now, experts a layer", str(snapshot.prefetch_depth))),
        ]

    def _heading(self, snapshot: Snapshot, width: int) -> Content:
        counters = snapshot.turn_counters
        share = figures.share(counters.hits, counters.routed)
        return heading(self.TITLE, (f"hit {share}", f"hit {figures.percent(counters.hits, counters.routed)}"), width)

    def _chart(self, width: int, height: int) -> list[Content]:
        samples = list(self.history.outcomes.samples)
        if not samples or width < 1:
            return [Content.styled(figures.DASH, "$quiet")] + [Content("")] * (height - 1)
        return stacked(samples, width, height, _PARTS, can_colour=not self.app.no_color)

    def _key(self, snapshot: Snapshot) -> list[Content]:
        counters = snapshot.turn_counters
        values = (counters.hits, counters.substituted, counters.late, counters.misses)
        return [
            key_of(part, figures.percent(value, counters.routed), can_colour=not self.app.no_color)
            for part, value in zip(_PARTS, values, strict=True)
        ]

    def _served(self, snapshot: Snapshot) -> list[Content]:
        """The parts of what was routed."""
        counters = snapshot.turn_counters
        return shares("of the experts routed to in this answer", outcomes(counters), counters.routed)

    def _used(self, snapshot: Snapshot) -> list[Content]:
        """The parts of what was prefetched."""
        counters = snapshot.turn_counters
        rows = (
            ("useful", counters.prefetch_useful),
            ("late", counters.prefetch_late),
            ("wasted", counters.prefetch_wasted),
            ("cancelled", counters.prefetch_cancelled),
            ("in flight or unused yet", counters.prefetch_in_flight),
        )
        return shares("of the prefetches issued in this answer", rows, counters.prefetch_issued)
