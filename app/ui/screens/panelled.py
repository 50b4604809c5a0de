"""A screen with live panels: beside its content where there is room, as one line, or in its place."""

from __future__ import annotations

from textual import events
from textual.geometry import Size
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from app.ui.screens.layer_detail import LayerDetail
from app.ui.screens.panel_view import PanelView
from app.ui.screens.typed_text import is_typed_since
from app.ui.widgets.panel import Panel
from app.ui.widgets.panel_column import PanelColumn
from app.ui.widgets.residency_map import ResidencyMap
from app.ui.widgets.status_line import StatusLine
from engine.events import Event, Snapshot

WIDE = 100
"""Columns from which the panels have room beside the chat."""

SMALLEST = (60, 16)
"""Columns and rows below which there are no panels."""

PANEL_MODES = ("full", "compact", "off")
_NARROW_MODES = ("compact", "full", "off")
"""The order where panels cover the chat: from the line that they are at first to whole ones."""


class PanelledScreen(Screen[None]):
    """Folds its PanelColumn and StatusLine; what the user chose for a width is kept when the width comes back."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (SMALLEST[0], "-narrow"), (WIDE, "-wide"), (150, "-huge")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (SMALLEST[1], "-short"), (30, "-medium"), (37, "-tall")]  # noqa: RUF012

    panel_mode: reactive[str] = reactive("full", init=False)
    _is_wide: bool | None = None
    _is_too_small = False

    def __init__(self) -> None:
        super().__init__()
        self._chosen_modes = {True: "full", False: "compact"}

    async def on_mount(self) -> None:
        self._fold(self.app.size)
        self.add_class(f"panels-{self.panel_mode}")

    def on_resize(self, event: events.Resize) -> None:
        self._fold(event.size)

    def _fold(self, size: Size) -> None:
        self._is_too_small = size.width < SMALLEST[0] or size.height < SMALLEST[1]
        is_wide = size.width >= WIDE
        if is_wide != self._is_wide:
            self._is_wide = is_wide
            self.panel_mode = self._chosen_modes[is_wide]
        self._keep_focus_shown()

    def watch_panel_mode(self, old: str, new: str) -> None:
        self.remove_class(f"panels-{old}")
        self.add_class(f"panels-{new}")
        if self._is_wide is not None:
            self._chosen_modes[self._is_wide] = new
        latest = self.query_one(PanelColumn).history.snapshot
        if new == "compact" and latest is not None:
            self.query_one(StatusLine).show(latest)
        self._keep_focus_shown()

    def _keep_focus_shown(self) -> None:
        """The focus at once to what is going to be shown: what is hidden would give it away late, when it may be back
        there. One class covers the chat, set here: those of the size come later than the panels' own, and the two
        together would hide for a moment what is to be shown."""
        self.set_class(self.panels_cover, "panels-cover")
        if not self.is_mounted:
            return
        column = self.query_one(PanelColumn)
        if self.panels_cover:
            if not column.has_focus_within:
                column.take_focus()
        elif column.has_focus_within or self.focused is None:
            self.focus_prompt()

    def watch_focused(self, focused: Widget | None) -> None:
        if focused is None:
            self.call_after_refresh(self._take_free_focus)

    def _take_free_focus(self) -> None:
        """Where nothing has the focus, as after the turn that had it was deleted, keys would not be heard."""
        if self.focused is None and self.app.app_focus:
            self._keep_focus_shown()

    @property
    def panels_cover(self) -> bool:
        """The panels have taken the place of everything else."""
        return self.panel_mode == "full" and not self._is_wide and not self._is_too_small

    def show_panels(self, snapshot: Snapshot) -> None:
        """Let the panels see a state, and draw those that are displayed."""
        self.query_one(PanelColumn).show(snapshot)
        if self.panel_mode == "compact":
            self.query_one(StatusLine).show(snapshot)

    def tell_panels(self, happened: list[Event]) -> None:
        """Let the panels know what happened."""
        self.query_one(PanelColumn).note(happened)

    def focus_prompt(self) -> None:
        """The focus to where one types, at once: a widget that asks for it itself gets it later."""
        self.set_focus(self.query_one("#prompt"), scroll_visible=False)

    def action_cycle_panels(self) -> None:
        """Panels full, as one line, or off; where they cover the chat, from the line to full ones."""
        if self._is_too_small:
            self.notify("Panels need a terminal of {} x {} at least.".format(*SMALLEST), timeout=3)
            return
        modes = PANEL_MODES if self._is_wide else _NARROW_MODES
        self.panel_mode = modes[(modes.index(self.panel_mode) + 1) % len(modes)]

    def action_to_panels(self) -> None:
        """The focus into the panels; from there back."""
        column = self.query_one(PanelColumn)
        if column.has_focus_within:
            self.focus_prompt()
        elif not self._is_too_small and not is_typed_since(self.app):
            self.panel_mode = "full"
            column.take_focus()

    def action_maximise_panel(self, name: str) -> None:
        """One panel with the whole screen."""
        self.app.push_screen(PanelView(name, self.query_one(PanelColumn).history))

    def on_panel_maximised(self, message: Panel.Maximised) -> None:
        self.action_maximise_panel(message.name)

    def on_residency_map_layer_chosen(self, message: ResidencyMap.LayerChosen) -> None:
        self.app.push_screen(LayerDetail(message.layer, self.query_one(PanelColumn).history))
