"""LINK: where experts are loaded over, from the host tier to the device."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.ui.widgets.charts import columns
from app.ui.widgets.panel import Panel, heading, pairs, shares
from engine.config import format_bytes
from engine.events import LinkUse, Snapshot


class LinkPanel(Panel):
    """Bandwidth now and at best, queued loads, bytes loaded since the model was. An emulated link says so."""

    TITLE: ClassVar[str] = "LINK"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("link",)

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        link = snapshot.link
        return [
            self._heading(link, width),
            *pairs(
                width,
                ("best", figures.bandwidth(link.best_bytes_per_s)),
                ("queue", str(link.queued)),
                ("loaded", format_bytes(link.bytes_moved)),
            ),
        ]

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        best, past = snapshot.link.best_bytes_per_s, list(self.history.link_bytes_per_s)
        chart = columns(past, width, max(3, min(12, height - 12)), best, "$secondary") if best and any(past) else []
        scale = f"while the engine worked, from 0 to the best, {figures.bandwidth(best)}" if chart else figures.DASH
        counters = snapshot.counters
        kinds = (
            ("on demand", counters.demand_loads),
            ("ahead of need", counters.prefetch_loads),
            ("for prompts, and warming", counters.prefill_loads),
        )
        return [
            *self.lines(snapshot, width),
            Content(""),
            *chart,
            Content.styled(scale, "$quiet"),
            Content(""),
            *shares("loads to the device since the model was loaded", kinds, counters.loads),
        ]

    def _heading(self, link: LinkUse, width: int) -> Content:
        now = f"{figures.bandwidth(link.bytes_per_s)} now"
        if link.emulated_bytes_per_s is None:
            return heading(self.TITLE, now, width)
        emulated = f"EMULATED at {figures.bandwidth(link.emulated_bytes_per_s)}"
        return heading(self.TITLE, (f"{now}  {emulated}", emulated), width, "$accent")
