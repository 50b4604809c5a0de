"""The column of live panels."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from app.telemetry.panel_history import PanelHistory
from app.ui.widgets.aes_panel import AesPanel
from app.ui.widgets.events_panel import EventsPanel
from app.ui.widgets.link_panel import LinkPanel
from app.ui.widgets.memory_bar import MemoryBar
from app.ui.widgets.panel import Panel
from app.ui.widgets.prefetch_panel import PrefetchPanel
from app.ui.widgets.residency_map import ResidencyMap
from app.ui.widgets.residency_panel import ResidencyPanel
from app.ui.widgets.tpot_panel import TpotPanel
from engine.events import EngineReady, Event, Snapshot

PANELS: dict[str, type[Panel] | type[ResidencyPanel]] = {
    "residency": ResidencyPanel,
    "prefetch": PrefetchPanel,
    "aes": AesPanel,
    "tpot": TpotPanel,
    "memory": MemoryBar,
    "link": LinkPanel,
    "events": EventsPanel,
}
"""Every panel by name, in the order of the column."""

_TWO_ABREAST = 64
"""Columns from which the panels of figures stand in two columns."""

_MAP_EXTRA, _FEWEST_MAP_ROWS, _EVENTS_ROWS = 2, 4, 3
"""Rows of RESIDENCY beside its map; rows that the map and EVENTS keep."""


class PanelColumn(Vertical):
    """Every panel. It watches every state, and draws while it is displayed."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id)
        self.history = PanelHistory()

    def compose(self) -> ComposeResult:
        made = {name: panel(name, self.history) for name, panel in PANELS.items()}
        yield made["residency"]
        with Container(id="figures"):
            yield Vertical(made["prefetch"], made["aes"])
            yield Vertical(made["tpot"], made["memory"], made["link"])
        yield made["events"]

    def set_model(self, ready: EngineReady) -> None:
        """Take what the figures need to know about the model."""
        if self.history.ready is not ready:
            self.history.follow(ready)
            if self.display:
                self.query_one(EventsPanel).tell()

    def note(self, happened: list[Event]) -> None:
        """Take in the engine's events."""
        self.history.note(happened)
        if happened and self.display:
            self.query_one(EventsPanel).tell()

    def show(self, snapshot: Snapshot) -> None:
        """Take the newest state, and pass it to every panel while they are displayed."""
        self.history.see(snapshot)
        if self.display:
            self._draw(snapshot)

    def on_show(self) -> None:
        if self.history.snapshot is not None:
            self._draw(self.history.snapshot)

    def on_resize(self) -> None:
        self.set_class(self.content_size.width >= _TWO_ABREAST, "-two")
        self.call_after_refresh(self._share_rows)

    def _draw(self, snapshot: Snapshot) -> None:
        self.query_one(ResidencyPanel).show(snapshot)
        for panel in self.query(Panel).results(Panel):
            if panel.display:
                panel.show(snapshot)
        self.call_after_refresh(self._share_rows)

    def _share_rows(self) -> None:
        """RESIDENCY gets the rows its map can use; what is left is for EVENTS."""
        residency, events = self.query_one(ResidencyPanel), self.query_one(EventsPanel)
        kept = self.query_one("#figures").outer_size.height + (_EVENTS_ROWS if events.display else 0)
        room = max(self.content_size.height - kept, _MAP_EXTRA + _FEWEST_MAP_ROWS)
        layout = self.query_one(ResidencyMap).layout_for(room - _MAP_EXTRA)
        height = _MAP_EXTRA + max(layout.rows, _FEWEST_MAP_ROWS) if layout and events.display else room
        if residency.styles.height is None or residency.styles.height.value != height:
            residency.styles.height = height

    def take_focus(self) -> None:
        """The focus to the first panel."""
        self.screen.set_focus(self.query_one(ResidencyMap))
