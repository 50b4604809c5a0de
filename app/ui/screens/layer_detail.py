"""One MoE layer with the whole screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen

from app.telemetry.panel_history import PanelHistory
from app.ui.key_map import bindings_of
from app.ui.widgets.key_line import KeyLine
from app.ui.widgets.layer_report import LayerReport
from app.ui.widgets.title_bar import ViewTitle
from engine.events import Event, Snapshot


class LayerDetail(Screen[None]):
    """A layer's report; its neighbours are reached from it."""

    ACTION_SCOPE: ClassVar[str] = "layer"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("layer")]

    def __init__(self, layer: int, history: PanelHistory) -> None:
        """`layer` counts MoE layers from 0."""
        super().__init__()
        self._history = history
        self.report = LayerReport(layer, history)
        self.report.can_focus = False

    def compose(self) -> ComposeResult:
        yield ViewTitle()
        with VerticalScroll(id="stage"):
            yield self.report
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one("#stage").focus()
        self.query_one(ViewTitle).show_place("layer by layer")
        if self._history.snapshot is not None:
            self.call_after_refresh(self.engine_snapshot, self._history.snapshot)

    async def engine_events(self, happened: list[Event]) -> None:
        """The chat underneath takes them in."""

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Show the newest state."""
        self.query_one(ViewTitle).show_mode(snapshot.mode)
        self.report.show(snapshot)

    def action_turn(self, step: int) -> None:
        """Another layer, the one after (1) or before (-1)."""
        if self._history.snapshot is not None:
            self.report.number = (self.report.number + step) % len(self._history.snapshot.residency)
            self.report.show(self._history.snapshot)

    def action_back(self) -> None:
        """Back to where it was opened."""
        self.dismiss()
