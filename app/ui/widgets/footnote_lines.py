"""A footnote on screen: no figure is parted from its unit or its whole by the end of a line."""

from __future__ import annotations

import re
from textwrap import wrap

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

_KEPT_TOGETHER = re.compile(r"(?<=\d) (?=[%\w])|(?<=\bof) (?=\d)| (?=·)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


class FootnoteLines(Widget):
    """Lines of plain text, each wrapped to the width."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def update(self, text: str) -> None:
        """Show another text."""
        self._text = text
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.rows(width))

    def render(self) -> Content:
        return Content("\n".join(self.rows(self.content_size.width)))

    def rows(self, width: int) -> list[str]:
        """Its rows in `width` cells."""
        glued = (_KEPT_TOGETHER.sub(_NO_BREAK, line) for line in self._text.splitlines())
        return [row.replace(_NO_BREAK, " ") for line in glued for row in wrap(line, max(1, width))]
