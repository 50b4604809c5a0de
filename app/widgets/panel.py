"""The common form of the live panels: a heading with its main figure, then a few quiet lines."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from engine.events import Snapshot


def heading(title: str, figure: str, width: int, style: str = "$foreground") -> Content:
    """The title at the left, the main figure at the right."""
    gap = max(1, width - len(title) - len(figure))
    return Content.assemble((title, "bold $quiet"), " " * gap, (figure, style))


def pairs(*items: tuple[str, str]) -> Content:
    """`name value` side by side, names quiet."""
    parts: list[str | tuple[str, str]] = []
    for name, value in items:
        parts += ["  "] if parts else []
        parts += [(f"{name} ", "$quiet"), (value, "$foreground")]
    return Content.assemble(*parts)


class Panel(Widget):
    """A few lines made from the snapshot; drawn again only when they changed."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self._snapshot: Snapshot | None = None
        self._lines: list[Content] = []

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        """What to show, in `width` columns."""
        raise NotImplementedError

    def blank_lines(self, width: int) -> list[Content]:
        """What to show before the first snapshot."""
        return [heading((self.id or "").upper(), "–", width, "$quiet")]

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of a new snapshot, for panels that keep a history."""

    def show(self, snapshot: Snapshot) -> None:
        """Take the newest state; redraw if it looks different."""
        self.observe(snapshot)
        self._snapshot = snapshot
        self._compose_lines()

    def on_resize(self) -> None:
        self._compose_lines()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self._lines))

    def render(self) -> Content:
        return Content("\n").join(self._lines)

    def _compose_lines(self) -> None:
        width = self.size.width
        lines = self.lines(self._snapshot, width) if self._snapshot else self.blank_lines(width)
        if lines == self._lines:
            return
        is_taller = len(lines) != len(self._lines)
        self._lines = lines
        self.refresh(layout=is_taller)
