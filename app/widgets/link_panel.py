"""LINK: the way from the host tier to the device."""

from __future__ import annotations

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading, pairs
from engine.config import format_bytes
from engine.events import Snapshot


class LinkPanel(Panel):
    """Bandwidth now and at best, what is queued, what was moved. An emulated link says so."""

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        link = snapshot.link
        is_emulated = link.emulated_bytes_per_s is not None
        now = figures.bandwidth(link.bytes_per_s)
        figure = f"{now}  EMULATED at {figures.bandwidth(link.emulated_bytes_per_s)}" if is_emulated else now
        return [
            heading("LINK", figure, width, "$accent" if is_emulated else "$foreground"),
            pairs(
                ("best", figures.bandwidth(link.best_bytes_per_s)),
                ("queue", str(link.queued)),
                ("moved", format_bytes(link.bytes_moved)),
            ),
        ]
