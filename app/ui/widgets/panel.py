"""The common form of the live panels: a heading with its main figure, then a few quiet lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from app.formatting import figures
from app.formatting.terms import explained
from app.telemetry.panel_history import PanelHistory
from app.ui.key_map import bindings_of
from engine.events import Counters, Snapshot


def heading(title: str, figure: str | tuple[str, ...], width: int, style: str = "$foreground") -> Content:
    """The title at the left, a rule, the main figure at the right: of several ways to write it the first that fits."""
    ways = (figure,) if isinstance(figure, str) else figure
    shown = next((way for way in ways if len(title) + len(way) + 2 <= width), ways[-1])
    rule = "─" * max(0, width - len(title) - len(shown) - 2)
    return Content.assemble((title, "bold $quiet"), " ", (rule, "$faint"), " ", (shown, style))


def wrapped(items: Iterable[Content], width: int, gap: str = "  ") -> list[Content]:
    """Items side by side, in as many lines as they need."""
    lines: list[Content] = []
    for item in items:
        if lines and lines[-1].cell_length + len(gap) + item.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], gap, item)
        else:
            lines.append(item)
    return lines


def pair(name: str, value: str) -> Content:
    """`name value`, the name quiet."""
    return Content.assemble((f"{name} ", "$quiet"), (value, "$foreground"))


def pairs(width: int, *items: tuple[str, str]) -> list[Content]:
    """`name value` side by side, in as many lines as they need."""
    return wrapped((pair(name, value) for name, value in items), width)


def table(rows: Iterable[tuple[str, ...]]) -> list[Content]:
    """Rows of columns: the first quiet and to the left, the others to the right."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    return [
        Content.assemble(
            (row[0].ljust(widths[0]), "$quiet"),
            *((f"  {cell:>{width}}", "$foreground") for cell, width in zip(row[1:], widths[1:], strict=True)),
        )
        for row in listed
    ]


def shares(title: str, rows: Iterable[tuple[str, int]], whole: int) -> list[Content]:
    """Below a title, each part of a whole, and how much of it that is."""
    listed = [(name, figures.of(part, whole), figures.percent(part, whole)) for name, part in rows]
    return [Content.styled(title, "bold $quiet"), *table(listed)]


def outcomes(counters: Counters) -> tuple[tuple[str, int], ...]:
    """(name, count) of everything that can become of a routed expert; they add up to `counters.routed`."""
    return (
        ("resident hits", counters.resident_hits),
        ("prefetched hits", counters.prefetched_hits),
        ("late", counters.late),
        ("misses, cold", counters.cold_misses),
        ("misses, evicted before", counters.capacity_misses),
        ("substituted", counters.substituted),
    )


class Maximisable(Widget):
    """What every panel has, and does with a double click and with its keys."""

    TITLE: ClassVar[str] = ""
    EXPLAINED: ClassVar[tuple[str, ...]] = ()
    """Terms that are explained below the panel when it is maximised, and first in its help; keys of `TERMS`."""

    def __init__(
        self, widget_id: str | None = None, history: PanelHistory | None = None, *, is_maximised: bool = False
    ) -> None:
        super().__init__(id=widget_id, classes="-maximised" if is_maximised else "")
        self.history = history or PanelHistory()
        self.is_maximised = is_maximised
        self._snapshot: Snapshot | None = None

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2:
            self.action_maximise()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What is maximised is not maximised again."""
        return not (action == "maximise" and self.is_maximised)

    def action_maximise(self) -> None:
        """Give it the whole screen."""
        if self.id and not self.is_maximised:
            self.post_message(Panel.Maximised(self.id))

    def action_step(self, direction: int) -> None:
        """The focus to the next panel (1), or to the one before (-1)."""
        (self.screen.focus_next if direction > 0 else self.screen.focus_previous)("PanelColumn Panel, ResidencyMap")


class Panel(Maximisable, can_focus=True):
    """A few lines made from the snapshot; drawn again only when they changed. Maximised, it has a screen's room."""

    FOCUS_ON_CLICK = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("panel")]

    _lines: Sequence[Content] = ()

    @dataclass
    class Maximised(Message):
        """The user wants the panel to have the whole screen."""

        name: str

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        """What to show, in `width` columns."""
        raise NotImplementedError

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        """What to show maximised; may be more than `height` lines."""
        return self.lines(snapshot, width)

    def blank_lines(self, width: int) -> list[Content]:
        """What to show before the first snapshot."""
        return [heading(self.TITLE, figures.DASH, width, "$quiet")]

    @property
    def num_lines(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def show(self, snapshot: Snapshot) -> None:
        """Take the newest state; redraw if it looks different."""
        self._snapshot = snapshot
        self._compose_lines()

    def on_resize(self) -> None:
        self._compose_lines()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self._lines))

    def render(self) -> Content:
        return Content("\n").join(self._lines)

    def _explanations(self, width: int) -> list[Content]:
        """One sentence for each term, after an empty line; wrapped to `width` columns."""
        lines = [Content.styled(line, "$quiet") for line in explained(self.EXPLAINED, width)]
        return [Content(""), *lines] if lines else []

    def _compose_lines(self) -> None:
        width = self.size.width
        if not width:  # not laid out yet
            return
        if self._snapshot is None:
            lines = self.blank_lines(width)
        elif self.is_maximised:
            explained = self._explanations(width)
            lines = [*self.full_lines(self._snapshot, width, self.screen.size.height - 2 - len(explained)), *explained]
        else:
            lines = self.lines(self._snapshot, width)
        has_changed, self._lines = lines != self._lines, lines
        height = self.styles.height
        if height is not None and height.is_auto and self.content_size.height != max(1, len(lines)):
            self.refresh(layout=True)
        elif has_changed:
            self.refresh()
