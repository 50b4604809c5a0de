"""A text as one widget: laid out once for each width, drawn line by line, selectable.

Finished turns as trees of widgets make focus changes and resizing take seconds in a long chat.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from app.ui.code_colours import CODE


class Span(NamedTuple):
    """Characters `start` to `end` of a line, of match number `match`."""

    start: int
    end: int
    match: int


class TextLines(Widget):
    """Lines made from a rich renderable."""

    COMPONENT_CLASSES = {"text-lines--match", "text-lines--match-now"}  # noqa: RUF012
    FOCUS_ON_CLICK = False
    NUM_HEAD_LINES = 0
    """Lines that belong to the app, not to the text: they are not searched."""

    def __init__(self) -> None:
        super().__init__()
        self._strips: list[Strip] = []
        self._strips_width = 0
        self._height = (0, 0)
        """The width it was last measured for, and the height it has there."""
        self._pattern: re.Pattern[str] | None = None
        self._current: int | None = None
        self._marked_now: int | None = None
        """`_current`, or the last match where there are fewer."""
        self._spans: dict[int, list[Span]] = {}

    @abstractmethod
    def renderable(self, *, is_seen: bool) -> RenderableType:
        """What is drawn. Not `is_seen`: only its height counts, colours do not."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if width not in (self._strips_width, self._height[0]):
            self._height = (width, self._measure(width))
        return len(self._strips) if width == self._strips_width else self._height[1]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips_width = 0

    def render_line(self, y: int) -> Strip:
        """Line `y`, with what was found and what is selected marked."""
        width = self.content_size.width
        self._lay_out(width)
        style = self.rich_style
        if y >= len(self._strips):
            return Strip.blank(width, style)
        strip = self._strips[y].apply_style(style)
        for span in self._spans.get(y, ()):
            name = "text-lines--match-now" if span.match == self._marked_now else "text-lines--match"
            strip = _marked(strip, span.start, span.end, self.get_component_rich_style(name))
        if (selection := self.text_selection) is not None and (selected := selection.get_span(y)) is not None:
            strip = _marked(strip, *selected, self.screen.get_component_rich_style("screen--selection"))
        return strip.adjust_cell_length(width, style).apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it is seen."""
        return selection.extract("\n".join(self._texts())), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def mark(self, pattern: re.Pattern[str] | None, current: int | None = None) -> None:
        """Mark what matches `pattern`, and its match number `current` more strongly; None: no marks."""
        if (pattern, current) == (self._pattern, self._current):
            return
        self._pattern, self._current = pattern, current
        self._find_spans()
        self.refresh()

    def line_of_match(self, number: int) -> int:
        """The line where match `number` begins, or the last match if there are fewer; 0 without any."""
        self._lay_out(self.content_size.width)
        at = [(span.match, y) for y, spans in self._spans.items() for span in spans]
        return min((y for match, y in at if match >= number), default=max((y for _, y in at), default=0))

    def refresh_text(self) -> None:
        """What `renderable` gives has changed."""
        self._strips_width, self._height = 0, (0, 0)
        self.refresh(layout=True)

    def _texts(self) -> list[str]:
        """The lines as they are searched and copied: empty where one is the app's own, such as that above code."""
        return ["" if _is_of_the_app(strip) else strip.text.rstrip() for strip in self._strips]

    def _lay_out(self, width: int) -> None:
        if width != self._strips_width and width > 0:
            self._strips, self._strips_width = self._make_strips(width), width
            self._find_spans()

    def _make_strips(self, width: int) -> list[Strip]:
        return self._strips_of(self.renderable(is_seen=True), width)

    def _strips_of(self, renderable: RenderableType, width: int) -> list[Strip]:
        lines = self.app.console.render_lines(renderable, self._options(width), pad=False)
        shown = _written(["".join(segment.text for segment in line) for line in lines])
        return [Strip(Segment.strip_links(lines[y])) for y in shown]

    def _measure(self, width: int) -> int:
        """How many lines there are at a width; a fraction of the work of making them."""
        segments = self.app.console.render(self.renderable(is_seen=False), self._options(width))
        return len(_written("".join(segment.text for segment in segments).split("\n")))

    def _options(self, width: int) -> ConsoleOptions:
        return self.app.console.options.update(width=max(1, width), height=None, highlight=False)

    def _find_spans(self) -> None:
        self._spans, self._marked_now = {}, None
        if self._pattern is not None:
            for y, span in spans_of(self._texts()[self.NUM_HEAD_LINES :], self._pattern):
                self._spans.setdefault(y + self.NUM_HEAD_LINES, []).append(span)
            if self._current is not None:
                last = max((span.match for spans in self._spans.values() for span in spans), default=0)
                self._marked_now = min(self._current, last)


def _written(lines: list[str]) -> range:
    """The numbers of the lines from the first to the last that is not blank."""
    numbers = [y for y, line in enumerate(lines) if line.strip()]
    return range(numbers[0], numbers[-1] + 1) if numbers else range(0)


def spans_of(lines: list[str], pattern: re.Pattern[str]) -> Iterable[tuple[int, Span]]:
    """Where `pattern` matches in `lines`, which may be one text wrapped: line number and span, a match over several
    lines once in each."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    y = 0
    for number, match in enumerate(pattern.finditer("\n".join(lines))):
        while starts[y + 1] <= match.start():
            y += 1
        for line in range(y, len(lines)):
            if starts[line] >= match.end():
                break
            start, end = max(match.start() - starts[line], 0), min(match.end() - starts[line], len(lines[line]))
            indent = len(lines[line]) - len(lines[line].lstrip()) if line > y else 0
            if max(start, indent) < end:
                yield line, Span(max(start, indent), end, number)


def _is_of_the_app(strip: Strip) -> bool:
    return any(segment.style is not None and CODE in segment.style.meta for segment in strip)


def _marked(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """`strip` with its characters `start` to `end` in `style`; an end of -1 is the line's."""
    text = strip.text
    left = cell_len(text[:start])
    right = strip.cell_length if end == -1 else cell_len(text[:end])
    if left >= right:
        return strip
    before, marked, after = strip.crop(0, left), strip.crop(left, right), strip.crop(right)
    return Strip.join([before, Strip(Segment.apply_style(marked, post_style=style)), after])
