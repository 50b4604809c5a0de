"""A finished answer as one widget: Markdown rendered once for each width, drawn line by line, selectable.

Finished answers as trees of Markdown widgets make focus changes and resizing take seconds in a long chat.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from app.markdown_style import FinishedMarkdown


class FinishedAnswer(Widget):
    """An answer that will not change any more."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.markdown = markdown
        self._strips: list[Strip] = []
        self._strips_width = 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._lay_out(width)
        return len(self._strips)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips_width = 0

    def render_line(self, y: int) -> Strip:
        """Line `y` of the answer, with what is selected marked."""
        width = self.size.width
        self._lay_out(width)
        style = self.rich_style
        if y >= len(self._strips):
            return Strip.blank(width, style)
        strip = self._strips[y].apply_style(style)
        if (selection := self.text_selection) is not None and (span := selection.get_span(y)) is not None:
            strip = _marked(strip, span, self.screen.get_component_rich_style("screen--selection"))
        return strip.adjust_cell_length(width, style).apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it is seen."""
        lines = "\n".join(strip.text.rstrip() for strip in self._strips)
        return selection.extract(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def _lay_out(self, width: int) -> None:
        if width == self._strips_width or width <= 0:
            return
        console = self.app.console
        options = console.options.update(width=width, height=None, highlight=False)
        renderable = FinishedMarkdown(self.markdown, self.app.theme_variables)
        lines = console.render_lines(renderable, options, pad=False)
        self._strips = [Strip(Segment.strip_links(line)) for line in lines]
        while self._strips and not self._strips[0].text.strip():
            self._strips.pop(0)
        while self._strips and not self._strips[-1].text.strip():
            self._strips.pop()
        self._strips_width = width


def _marked(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """`strip` with the characters of `span` in `style`; an end of -1 is the line's."""
    start, end = span
    end = strip.cell_length if end == -1 else min(end, strip.cell_length)
    if start >= end:
        return strip
    before, selected, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, Strip(Segment.apply_style(selected, post_style=style)), after])
