"""What the model thought before it answered: a line that opens."""

from __future__ import annotations

from rich.console import Group
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region
from textual.strip import Strip

from app.formatting import figures
from app.formatting.sanitise import visible
from app.ui.widgets.growing_lines import GrowingLines

_OPEN_LINES = 8
"""A line that takes more of the screen's lines is settled but for the last of those."""


class ThinkingBlock(GrowingLines):
    """Folded, its length and time alone; a click or `toggle` opens it. Only its last line is laid out as it grows."""

    NUM_HEAD_LINES = 1

    def __init__(self, *, is_open: bool) -> None:
        super().__init__()
        self.is_open = is_open
        self._text, self._num_tok, self._duration_ms, self._is_live = "", 0, 0.0, False
        self._num_made = 0
        """Characters of the text that are settled lines."""

    def show(self, text: str, num_tok: int, duration_ms: float | None, *, is_live: bool) -> None:
        """The thinking so far, how many tokens it took, and how long."""
        before, self._text = self._text, text.replace("\r\n", "\n").removesuffix("\r").strip("\n")
        self._num_tok, self._duration_ms, self._is_live = num_tok, duration_ms or 0.0, is_live
        if not self._text.startswith(before):
            self.begin_anew()
        self.show_growth()
        self.refresh(Region(0, 0, self.size.width, 1))

    def toggle(self, is_open: bool | None = None) -> None:
        """Open or fold; None: the other."""
        self.is_open = not self.is_open if is_open is None else is_open
        self.begin_anew()
        self.refresh(layout=True)

    def renderable(self, *, is_seen: bool) -> Group:
        return Group(self._head(), *([self._body(self._text)] if self.is_open else []))

    def settled_strips(self, width: int, *, begins_anew: bool) -> list[Strip]:
        strips: list[Strip] = []
        if begins_anew:
            self._num_made, strips = 0, self._strips_of(self._head(), width)
        if not self.is_open:
            return strips
        if (end := self._text.rstrip().rfind("\n") + 1) > self._num_made:
            strips += self._wrapped(self._text[self._num_made : end - 1], width)
            self._num_made = end
        line = self._text[end:].rstrip()[self._num_made - end :]
        wrapped = self._wrapped(line, width)
        if len(wrapped) > _OPEN_LINES and (last := wrapped[-1].text.rstrip()) and line.endswith(last):
            strips += wrapped[:-1]
            self._num_made += len(line) - len(last)
        return strips

    def open_strips(self, width: int) -> list[Strip]:
        text = self._text[self._num_made :].rstrip()
        return self._wrapped(text, width) if self.is_open and text else []

    def _make_strips(self, width: int) -> list[Strip]:
        strips = super()._make_strips(width)
        strips[:1] = self._strips_of(self._head(), width)
        return strips

    def _wrapped(self, text: str, width: int) -> list[Strip]:
        lines = self.app.console.render_lines(self._body(text), self._options(width), pad=False)
        return [Strip(line) for line in lines]

    def _body(self, text: str) -> Text:
        return Text(visible(text), self._quiet + Style(italic=True), overflow="fold")

    def _head(self) -> Text:
        length = f"{self._num_tok} tok, " if self._num_tok else ""
        took = figures.milliseconds(self._duration_ms) if self._duration_ms else figures.DASH
        head = f"{'▾' if self.is_open else '▸'} thinking{' …' if self._is_live else ''} ({length}{took})"
        return Text(head, self._quiet, no_wrap=True, overflow="ellipsis")

    @property
    def _quiet(self) -> Style:
        return Style(color=self.app.theme_variables["quiet"])

    def on_click(self, event: events.Click) -> None:
        """The first line is the handle."""
        if event.y == 0 or not self.is_open:
            event.stop()
            self.toggle()
