"""AES: approximate expert substitution, what stood in for what."""

from __future__ import annotations

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading, pairs
from engine.config import APPROX
from engine.events import Snapshot


class AesPanel(Panel):
    """Substitutions of this answer, the routing weight they carried, and the layer with the most since load."""

    top_k: int | None = None

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        counters = snapshot.turn_counters
        colour = "$approx" if snapshot.mode == APPROX else "$foreground"
        weight = (
            figures.percent(counters.substituted_mass * self.top_k, counters.routed) if self.top_k else figures.DASH
        )
        return [
            heading(
                "AES",
                f"{figures.of(counters.substituted, counters.routed)} substituted" if counters.routed else figures.DASH,
                width,
                colour,
            ),
            pairs(
                ("weight", weight),
                ("avail", figures.percent(counters.availability_rate)),
                ("worst", self._worst_layer(snapshot)),
            ),
        ]

    def _worst_layer(self, snapshot: Snapshot) -> str:
        worst = max(
            zip(snapshot.layer_numbers, snapshot.layer_counters, strict=False),
            key=lambda pair: pair[1].substituted_rate or 0.0,
            default=None,
        )
        if worst is None or not worst[1].substituted:
            return figures.DASH
        return f"L{worst[0]} {figures.percent(worst[1].substituted_rate)}"
