"""AES: approximate expert substitution, how many, and in which layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.ui.widgets.panel import Panel, heading, pairs
from engine.config import APPROX
from engine.events import Counters, Snapshot

_BARS_NAME_WIDTH = 12


class AesPanel(Panel):
    """Substitutions of this answer: how many, the routing weight they carried, and in which layers."""

    TITLE: ClassVar[str] = "AES"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("AES", "alpha", "weight")

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        return [
            self._heading(snapshot, width),
            *pairs(
                width,
                ("weight", self._weight(snapshot)),
                ("avail", figures.percent(snapshot.turn_counters.availability_rate)),
                ("worst", worst_layer(snapshot.layer_numbers, self.history.layers_of_answer(snapshot))),
            ),
            self._layer_bars(snapshot, width),
        ]

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        counters = snapshot.turn_counters
        num_available = counters.hits + counters.substituted
        return [
            self._heading(snapshot, width),
            Content(""),
            *pairs(width, ("routing weight carried by substitutes", self._weight(snapshot))),
            *pairs(width, ("available without waiting", figures.share(num_available, counters.routed))),
            Content(""),
            Content.styled("substituted of routed by layer, in this answer", "bold $quiet"),
            *self._layer_rows(snapshot, width),
        ]

    def _heading(self, snapshot: Snapshot, width: int) -> Content:
        counters = snapshot.turn_counters
        colour = "$approx" if snapshot.mode == APPROX else "$foreground"
        figure = figures.of(counters.substituted, counters.routed)
        if not counters.routed:
            return heading(self.TITLE, figure, width, colour)
        ways: tuple[str, ...] = (f"{figure} substituted", figure)
        if counters.substituted and snapshot.mode != APPROX:  # the answer began otherwise
            colour, ways = "$approx", (f"{figure} substituted while APPROX", f"{figure} in APPROX", *ways)
        return heading(self.TITLE, ways, width, colour)

    def _weight(self, snapshot: Snapshot) -> str:
        """Each token's routing weights count as 1 in a layer, so routed / top_k is the whole."""
        ready, counters = self.history.ready, snapshot.turn_counters
        if ready is None or not ready.top_k:
            return figures.DASH
        return figures.percent(counters.substituted_mass * ready.top_k, counters.routed)

    def _layer_bars(self, snapshot: Snapshot, width: int) -> Content:
        """A bar a layer, or for as many layers as it takes to fit; the tallest one is the worst layer."""
        counters = self.history.layers_of_answer(snapshot)
        step = -(-len(counters) // max(1, width - _BARS_NAME_WIDTH)) or 1
        name = "by layer " if step == 1 else f"by {step} layers "
        rates: list[float | None] = []
        for first in range(0, len(counters), step):
            group = counters[first : first + step]
            routed = sum(layer.routed for layer in group)
            rates.append(sum(layer.substituted for layer in group) / routed if routed else None)
        if not any(rates):
            return Content.styled(f"{name}{figures.DASH}", "$quiet")
        return Content.assemble((name, "$quiet"), (figures.sparkline(rates, len(rates)), "$approx"))

    def _layer_rows(self, snapshot: Snapshot, width: int) -> list[Content]:
        layers = self.history.layers_of_answer(snapshot)
        rates = [layer.substituted_rate or 0.0 for layer in layers]
        top = max(rates, default=0.0)
        rows = []
        for number, layer, rate in zip(snapshot.layer_numbers, layers, rates, strict=True):
            share = figures.share(layer.substituted, layer.routed)
            room = max(1, width - 6 - len(share) - 2)
            bar = "▇" * (max(1, round(room * rate / top)) if rate else 0)
            rows.append(Content.assemble((f"L{number}".ljust(6), "$quiet"), (bar.ljust(room), "$approx"), "  ", share))
        return rows


def worst_layer(numbers: Sequence[int], layers: Sequence[Counters]) -> str:
    """The layer with the largest share of substitutions, as in `L31 1.5 %`; a dash without any."""
    worst = max(zip(numbers, layers, strict=False), key=lambda pair: pair[1].substituted_rate or 0.0, default=None)
    if worst is None or not worst[1].substituted:
        return figures.DASH
    return f"L{worst[0]} {figures.percent(worst[1].substituted_rate)}"
