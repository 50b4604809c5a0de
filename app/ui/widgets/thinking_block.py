"""What the model thought before it answered: a line that opens."""

from __future__ import annotations

from rich.console import Group
from rich.style import Style
from rich.text import Text
from textual import events

from app.formatting import figures
from app.formatting.sanitise import visible
from app.ui.widgets.text_lines import TextLines


class ThinkingBlock(TextLines):
    """Folded, its length and time alone; a click or `toggle` opens it."""

    NUM_HEAD_LINES = 1

    def __init__(self, *, is_open: bool) -> None:
        super().__init__()
        self.is_open = is_open
        self._text, self._num_tok, self._duration_ms, self._is_live = "", 0, 0.0, False

    def show(self, text: str, num_tok: int, duration_ms: float | None, *, is_live: bool) -> None:
        """The thinking so far, how many tokens it took, and how long."""
        self._text, self._num_tok, self._duration_ms = visible(text).strip("\n"), num_tok, duration_ms or 0.0
        self._is_live = is_live
        self.refresh_text()

    def toggle(self, is_open: bool | None = None) -> None:
        """Open or fold; None: the other."""
        self.is_open = not self.is_open if is_open is None else is_open
        self.refresh_text()

    def renderable(self, *, is_seen: bool) -> Group:
        quiet = Style(color=self.app.theme_variables["quiet"])
        length = f"{self._num_tok} tok, " if self._num_tok else ""
        took = figures.milliseconds(self._duration_ms) if self._duration_ms else figures.DASH
        head = f"{'▾' if self.is_open else '▸'} thinking{' …' if self._is_live else ''} ({length}{took})"
        body = [Text(self._text, style=quiet + Style(italic=True), overflow="fold")] if self.is_open else []
        return Group(Text(head, style=quiet), *body)

    def on_click(self, event: events.Click) -> None:
        """The first line is the handle."""
        if event.y == 0 or not self.is_open:
            event.stop()
            self.toggle()
