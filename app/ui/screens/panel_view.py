"""One panel maximised. The chat continues underneath."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen

from app.telemetry.panel_history import PanelHistory
from app.ui.key_map import bindings_of
from app.ui.screens.layer_detail import LayerDetail
from app.ui.widgets.key_line import KeyLine
from app.ui.widgets.panel import Panel
from app.ui.widgets.panel_column import PANELS
from app.ui.widgets.residency_map import ResidencyMap
from app.ui.widgets.residency_panel import ResidencyPanel
from app.ui.widgets.title_bar import ViewTitle
from engine.events import Event, Snapshot


class PanelView(Screen[None]):
    """A panel maximised; others are reached from it."""

    ACTION_SCOPE: ClassVar[str] = "view"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("view")]

    def __init__(self, name: str, history: PanelHistory) -> None:
        super().__init__()
        self.panel_name = name
        self._history = history
        self._below: Screen[object] | None = None

    def compose(self) -> ComposeResult:
        yield ViewTitle()
        yield VerticalScroll(id="stage")
        yield KeyLine()

    async def on_mount(self) -> None:
        self._below = self.app.screen_stack[-2]
        await self._mount_panel()

    async def engine_events(self, happened: list[Event]) -> None:
        """The chat underneath takes them in."""

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Show the newest state."""
        self.query_one(ViewTitle).show_mode(snapshot.mode)
        for panel in self.query("Panel, ResidencyPanel"):
            assert isinstance(panel, Panel | ResidencyPanel)
            panel.show(snapshot)

    async def _mount_panel(self) -> None:
        stage = self.query_one("#stage", VerticalScroll)
        panel = PANELS[self.panel_name](None, self._history, is_maximised=True)
        panel.can_focus = False
        place = list(PANELS).index(self.panel_name) + 1
        self.query_one(ViewTitle).show_place(f"panel {place} of {len(PANELS)}")
        await stage.remove_children()
        await stage.mount(panel)
        (self.query_one(ResidencyMap) if isinstance(panel, ResidencyPanel) else stage).focus()
        if self._history.snapshot is not None:
            self.call_after_refresh(self.engine_snapshot, self._history.snapshot)

    async def action_turn(self, step: int) -> None:
        """Another panel, the one after (1) or before (-1)."""
        names = list(PANELS)
        self.panel_name = names[(names.index(self.panel_name) + step) % len(names)]
        await self._mount_panel()

    def action_back(self) -> None:
        """Back to where it was opened."""
        self.dismiss()

    async def action_toggle_mode(self) -> None:
        """The other mode, as if asked for in the chat."""
        await self.app.run_action("toggle_mode", self._below)

    def on_residency_map_layer_chosen(self, message: ResidencyMap.LayerChosen) -> None:
        self.app.push_screen(LayerDetail(message.layer, self._history))
