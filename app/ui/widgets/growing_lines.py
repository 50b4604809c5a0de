"""The lines of a text that grows at its end: those that will not change any more are made once."""

from __future__ import annotations

from abc import abstractmethod
from itertools import zip_longest

from textual.geometry import Region, Size
from textual.strip import Strip

from app.ui.widgets.text_lines import TextLines


class GrowingLines(TextLines):
    """Settled lines, and an open end that is laid out again with every growth."""

    def __init__(self) -> None:
        super().__init__()
        self._settled_width, self._num_settled = 0, 0
        """For which width the first lines are settled, and how many."""

    @abstractmethod
    def settled_strips(self, width: int, *, begins_anew: bool) -> list[Strip]:
        """The lines that have been settled since the last call, or all of them."""

    @abstractmethod
    def open_strips(self, width: int) -> list[Strip]:
        """The lines that may still change."""

    def show_growth(self) -> None:
        """Lay out what has grown, and draw what has changed."""
        first, before, width = self._num_settled, self._strips[self._num_settled :], self.content_size.width
        num_before = len(self._strips)
        self._strips_width, self._height = 0, (0, 0)
        self._lay_out(width)
        if len(self._strips) != num_before or width <= 0:
            self.refresh(layout=True)
            return
        pairs = enumerate(zip_longest(before, self._strips[first:]), first)
        changed = [y for y, (old, new) in pairs if old is not new and old != new]
        if changed:
            self.refresh(Region(0, changed[0], width, changed[-1] - changed[0] + 1))

    def begin_anew(self) -> None:
        """Everything is to be laid out again."""
        self._strips_width, self._settled_width, self._height = 0, 0, (0, 0)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Laying out is measuring: it is done once for each line."""
        self._lay_out(width)
        return len(self._strips)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.begin_anew()

    def _make_strips(self, width: int) -> list[Strip]:
        begins_anew, strips = width != self._settled_width, self._strips
        del strips[0 if begins_anew else self._num_settled :]
        strips += self.settled_strips(width, begins_anew=begins_anew)
        self._settled_width, self._num_settled = width, len(strips)
        strips += self.open_strips(width)
        return strips
