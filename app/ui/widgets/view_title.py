"""The first line of a screen that shows a panel or a layer."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from app.ui.widgets.mode_badge import ModeBadge


class ViewTitle(Horizontal):
    """Where one is at the left, the mode at the right."""

    def compose(self) -> ComposeResult:
        yield Static(id="view-title", markup=False)
        yield ModeBadge("view-mode")

    def show_place(self, place: str) -> None:
        """Say where one is."""
        self.query_one("#view-title", Static).update(
            Content.assemble(("moe-chat", "bold $primary"), (" · ", "$faint"), (place, "$quiet"))
        )

    def show_mode(self, mode: str) -> None:
        """Show the mode."""
        self.query_one(ModeBadge).show(mode, None)
