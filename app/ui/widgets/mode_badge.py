"""EXACT or APPROX: always a word, a glyph and a colour."""

from __future__ import annotations

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from engine.config import APPROX, EXACT

GLYPHS = {EXACT: "◆", APPROX: "≈"}


def mode_content(mode: str, wanted: str | None = None) -> Content:
    """The mode as the engine confirmed it, and the one that was asked for and is not yet confirmed."""
    colour = "$approx" if mode == APPROX else "$exact"
    parts: list[str | tuple[str, str]] = [(f"{GLYPHS[mode]} {mode.upper()}", f"bold {colour}")]
    if wanted is not None and wanted != mode:
        parts.append((f" → {GLYPHS[wanted]}", "$quiet"))
    return Content.assemble(*parts)


class ModeBadge(Widget):
    """The mode; a click toggles it."""

    class Clicked(Message):
        """The user wants the other mode."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self._content = mode_content(EXACT)
        self.tooltip = (
            "EXACT computes what the whole model would. "
            "APPROX may replace a missed expert by one on the device. A click changes it."
        )

    def show(self, mode: str, wanted: str | None) -> None:
        """Show a confirmed mode and a wanted one."""
        content = mode_content(mode, wanted)
        if content != self._content:
            self._content = content
            self.refresh(layout=True)

    def render(self) -> Content:
        return self._content

    def on_click(self) -> None:
        self.post_message(self.Clicked())
