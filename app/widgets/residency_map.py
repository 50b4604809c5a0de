"""The heatmap: which expert of which layer is where. Drawn line by line; only changed lines are drawn again."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from app.widgets.heat_layout import LABEL_WIDTH, NOTHING, HeatLayout, cell_rows, plan_layout
from engine.events import Snapshot

GLYPHS = "·■▒█≈ "
"""One for each code, so that the map can be read without colour."""

_UPPER_HALF = "▀"
_COMPONENTS = ("host", "resident", "arriving", "in-use", "substitute", "nothing")


class ResidencyMap(Widget):
    """Layers x experts, scaled to whatever room there is."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"residency-map--{name}" for name in (*_COMPONENTS, "label")}

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.layout_plan: HeatLayout | None = None
        self._rows: list[bytes] = []
        self._shape = (0, 0)
        self._labels: tuple[int, ...] = ()
        self._residency: tuple[bytes, ...] = ()
        self._styles: list[Style] = []
        self._half_styles: list[list[Style]] = []
        self._label_style = Style()

    def show(self, snapshot: Snapshot) -> None:
        """Take the newest state; redraw what changed."""
        if snapshot.residency == self._residency and self.layout_plan is not None:
            return
        self._residency, self._labels = snapshot.residency, snapshot.layer_numbers
        shape = (len(snapshot.residency), max(map(len, snapshot.residency), default=0))
        if shape != self._shape or self.layout_plan is None:
            self._shape = shape
            self._plan()
            return
        rows = cell_rows(self._residency, shape[1], self.layout_plan)
        changed = {self._line_of(index) for index, row in enumerate(rows) if row != self._rows[index]}
        self._rows = rows
        if changed:
            self.refresh(*(Region(0, line, self.size.width, 1) for line in changed))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = []

    def on_resize(self) -> None:
        self._plan()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.layout_plan.rows if self.layout_plan else 1

    def _plan(self) -> None:
        self.layout_plan = plan_layout(*self._shape, self.size.width, self.size.height, can_halve=not self.app.no_color)
        self._rows = cell_rows(self._residency, self._shape[1], self.layout_plan) if self.layout_plan else []
        self.refresh()

    def _line_of(self, row: int) -> int:
        assert self.layout_plan is not None
        return (row // self.layout_plan.layers_per_row) % self.layout_plan.rows

    def _build_styles(self) -> None:
        colours = [self.get_component_rich_style(f"residency-map--{name}") for name in _COMPONENTS]
        self._styles = colours
        self._half_styles = [[Style(color=upper.color, bgcolor=lower.color) for lower in colours] for upper in colours]
        self._label_style = self.get_component_rich_style("residency-map--label")

    def render_line(self, y: int) -> Strip:
        """Line `y` of the map: for each block a layer's number, then its cells."""
        layout = self.layout_plan
        if not self._styles:
            self._build_styles()
        blank = Strip.blank(self.size.width, self.rich_style)
        if layout is None or y >= layout.rows:
            return blank
        segments: list[Segment] = []
        for block in range(layout.blocks):
            row = (block * layout.rows + y) * layout.layers_per_row
            if row >= len(self._rows):
                break
            if block:
                segments.append(Segment("  ", self.rich_style))
            label = self._labels[row * layout.layers_per_cell]
            segments.append(Segment(f"{label:>{LABEL_WIDTH - 1}} ", self._label_style))
            segments += self._cells(row)
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)

    def _cells(self, row: int) -> list[Segment]:
        assert self.layout_plan is not None
        width = self.layout_plan.cell_width
        upper = self._rows[row]
        if self.layout_plan.layers_per_row == 1:
            return [Segment(GLYPHS[code].ljust(width), self._styles[code]) for code in upper]
        lower = self._rows[row + 1] if row + 1 < len(self._rows) else bytes([NOTHING]) * len(upper)
        return [
            Segment(_UPPER_HALF * width, self._half_styles[high][low]) for high, low in zip(upper, lower, strict=True)
        ]
