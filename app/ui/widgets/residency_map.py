"""The heatmap: which expert of which layer is where. Drawn line by line; only changed lines are drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.color import Color
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from app.ui.key_map import bindings_of
from app.ui.widgets.heat_layout import LABEL_WIDTH, NOTHING, HeatLayout, SlotPlaces, cell_rows, plan_layout
from engine.events import HOST, RESIDENT, Snapshot

GLYPHS = "·□+█≈ ■░▒▓"
"""One for each code, so that the map can be read without colour."""

_UPPER_HALF = "▀"
_COMPONENTS = ("host", "resident", "loading", "in-use", "substitute", "nothing", "hot")
_PARTLY_BLENDS = (0.3, 0.5, 0.7)


class ResidencyMap(Widget, can_focus=True):
    """Layers x experts, or layers x slots, scaled to whatever room there is. The cursor chooses a layer."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"residency-map--{name}" for name in (*_COMPONENTS, "label", "cursor")}
    FOCUS_ON_CLICK = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("map")]

    @dataclass
    class LayerChosen(Message):
        """The user wants to see a layer."""

        layer: int

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.layout_plan: HeatLayout | None = None
        self.cursor = 0
        self._rows: list[bytes] = []
        self._num_columns = 0
        self._snapshot: Snapshot | None = None
        self._codes: Sequence[bytes] = ()
        self._shape: tuple[object, ...] = ()
        self._places = SlotPlaces()
        self._styles: list[Style] = []
        self._half_styles: list[list[Style]] = []
        self._label_style = self._cursor_style = self._plain_style = Style()

    def show(self, snapshot: Snapshot, marked: Sequence[bytes] | None = None) -> None:
        """Take the newest state, its codes perhaps with hot experts marked; redraw what changed."""
        codes = snapshot.residency if marked is None else marked
        if codes == self._codes and self.layout_plan is not None:
            return
        self._snapshot, self._codes = snapshot, codes
        shape = (tuple(map(len, codes)), snapshot.slots_per_layer, snapshot.num_pool_slots)
        if shape != self._shape or self.layout_plan is None:
            self._shape = shape
            self._plan()
            return
        rows = self._cell_rows()
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

    def layout_for(self, height: int) -> HeatLayout | None:
        """How the map would be laid out in its width and that many lines."""
        is_known = self._snapshot is not None and not self._snapshot.num_pool_slots
        slots = self._snapshot.slots_per_layer if self._snapshot is not None and is_known else ()
        return plan_layout(
            len(self._codes),
            max(map(len, self._codes), default=0),
            self.size.width,
            height,
            can_halve=not self.app.no_color,
            num_slots=max(slots, default=None),
            count_width=1 + len(str(max(slots))) if len(set(slots)) > 1 else 0,
        )

    def _plan(self) -> None:
        """Lay the map out for the present shape and room."""
        self.layout_plan = self.layout_for(self.size.height)
        is_by_slot = self.layout_plan is not None and self.layout_plan.is_by_slot
        columns = self._snapshot.slots_per_layer if is_by_slot and self._snapshot else map(len, self._codes)
        self._num_columns = max(columns, default=0)
        self._rows = self._cell_rows()
        self.refresh()

    def _cell_rows(self) -> list[bytes]:
        if self.layout_plan is None or self._snapshot is None:
            return []
        codes = self._codes
        if self.layout_plan.is_by_slot:
            codes = self._places.rows(codes, self._snapshot.slots_per_layer)
            codes = [row[: self._num_columns] for row in codes]
        return cell_rows(codes, self._num_columns, self.layout_plan)

    def _line_of(self, row: int) -> int:
        assert self.layout_plan is not None
        return (row // self.layout_plan.layers_per_row) % self.layout_plan.rows

    # The cursor

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if self.layout_plan is not None and place is not None and place.y < self.layout_plan.rows:
            layer = self.layout_plan.layer_at(place.x, place.y, self._num_columns)
            if layer < len(self._codes):
                event.stop()
                self.move_to(layer)
                self.action_choose()

    def move_to(self, layer: int) -> None:
        """Put the cursor on a layer."""
        self.cursor = max(0, min(len(self._codes) - 1, layer))
        self.refresh()

    def action_move(self, step: int) -> None:
        """Move the cursor by layers."""
        self.move_to(self.cursor + step)

    def action_choose(self) -> None:
        """Look at the layer under the cursor."""
        if self._codes:
            self.post_message(self.LayerChosen(self.cursor))

    # Drawing

    def _build_styles(self) -> None:
        named = [self.get_component_rich_style(f"residency-map--{name}") for name in _COMPONENTS]
        host, resident = named[HOST].color, named[RESIDENT].color
        assert host is not None
        assert resident is not None
        low, high = Color.from_rich_color(host), Color.from_rich_color(resident)
        blends = [low.blend(high, share) for share in _PARTLY_BLENDS]
        colours = [*named, *(named[HOST] + Style(color=RichColor.from_rgb(*blend.rgb)) for blend in blends)]
        self._styles = colours
        self._half_styles = [[Style(color=upper.color, bgcolor=lower.color) for lower in colours] for upper in colours]
        self._plain_style = self.rich_style
        self._label_style = self.get_component_rich_style("residency-map--label")
        self._cursor_style = self.get_component_rich_style("residency-map--cursor")

    def render_line(self, y: int) -> Strip:
        """Line `y` of the map: for each block a layer's number, its cells, and perhaps its number of slots."""
        layout = self.layout_plan
        if not self._styles:
            self._build_styles()
        if layout is None or y >= layout.rows:
            return Strip.blank(self.size.width, self._plain_style)
        segments: list[Segment] = []
        for block in range(layout.blocks):
            row = (block * layout.rows + y) * layout.layers_per_row
            if row >= len(self._rows):
                break
            if block:
                segments.append(Segment("  ", self._plain_style))
            segments.append(self._label(row))
            segments += self._cells(row)
            if layout.count_width:
                segments.append(self._slot_counts(row))
        return Strip(segments).adjust_cell_length(self.size.width, self._plain_style)

    def _label(self, row: int) -> Segment:
        """The number of the row's first layer, or of the one under the cursor."""
        assert self.layout_plan is not None
        assert self._snapshot is not None
        first = row * self.layout_plan.layers_per_cell
        num_layers = self.layout_plan.layers_per_row * self.layout_plan.layers_per_cell
        is_chosen = self.has_focus and first <= self.cursor < first + num_layers
        number = self._snapshot.layer_numbers[self.cursor if is_chosen else first]
        style = self._cursor_style if is_chosen else self._label_style
        return Segment(f"{number:>{LABEL_WIDTH - 1}} ", style)

    def _glyph_style(self, code: int) -> Style:
        """Half-blocks fill what is on the host with a quiet colour, in which its dot could not be seen."""
        return self._label_style if code == HOST else self._styles[code]

    def _slot_counts(self, row: int) -> Segment:
        """The number of slots of the row's layers."""
        assert self.layout_plan is not None
        assert self._snapshot is not None
        counts = self._snapshot.slots_per_layer[row : row + self.layout_plan.layers_per_row]
        width = self.layout_plan.count_width // self.layout_plan.layers_per_row
        text = "".join(f"{count:>{width}}" for count in counts).ljust(self.layout_plan.count_width)
        return Segment(text, self._label_style)

    def _cells(self, row: int) -> list[Segment]:
        """One segment for each run of equal cells."""
        assert self.layout_plan is not None
        width, upper = self.layout_plan.cell_width, self._rows[row]
        if self.layout_plan.layers_per_row == 1:
            runs = [(code, len(list(run))) for code, run in groupby(upper)]
            return [Segment(GLYPHS[code].ljust(width) * length, self._glyph_style(code)) for code, length in runs]
        lower = self._rows[row + 1] if row + 1 < len(self._rows) else bytes([NOTHING]) * len(upper)
        pairs = [(pair, len(list(run))) for pair, run in groupby(zip(upper, lower, strict=True))]
        return [Segment(_UPPER_HALF * width * length, self._half_styles[high][low]) for (high, low), length in pairs]
