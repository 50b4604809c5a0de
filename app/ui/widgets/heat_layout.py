"""How a map of layers x experts is laid into a given room, and which place each expert has on a map by slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from app.telemetry.expert_use import HOT
from engine.events import HOST, IN_USE, LOADING, RESIDENT, SUBSTITUTE

NOTHING = 5
"""Code of a cell beyond the last expert of a layer that has fewer than the widest."""

PARTLY = (7, 8, 9)
"""Codes of a cell that stands for several experts: under a third, under two thirds, more of them resident."""

LABEL_WIDTH = 3
"""Columns of a layer's number and the gap after it."""

_BLOCK_GAP = 2
_URGENCY = (SUBSTITUTE, LOADING, IN_USE)
"""What a grouped cell shows as soon as one of its experts is in that state, the rarest first."""


class HeatLayout(NamedTuple):
    """A way to draw the map. Blocks stand side by side, each holding a run of layers."""

    rows: int
    blocks: int
    cell_width: int
    layers_per_row: int
    """2: half-blocks, the upper layer in the foreground."""
    experts_per_cell: int
    layers_per_cell: int
    is_by_slot: bool = False
    """Columns are slots of the device, not experts."""
    count_width: int = 0
    """Columns after a layer's cells for its number of slots; 0: not shown."""

    @property
    def is_grouped(self) -> bool:
        """A cell stands for more than one expert."""
        return self.experts_per_cell > 1 or self.layers_per_cell > 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What one cell stands for, at length and shorter; none where that is simply one expert."""
        if self.is_by_slot:
            return "1 cell = 1 slot", "by slot"
        num_experts = self.experts_per_cell * self.layers_per_cell
        return (f"1 cell = {num_experts} experts", f"{num_experts} a cell") if self.is_grouped else ()

    def layer_at(self, column: int, line: int, num_columns: int) -> int:
        """The first layer drawn at a place of the map of `num_columns` experts or slots; may be beyond the last."""
        cells = -(-num_columns // self.experts_per_cell) * self.cell_width
        block = column // (LABEL_WIDTH + cells + self.count_width + _BLOCK_GAP)
        return (min(block, self.blocks - 1) * self.rows + line) * self.layers_per_row * self.layers_per_cell


def _fit(
    num_layers: int, block_width: int, width: int, height: int, layers_per_row: int, most_blocks: int
) -> tuple[int, int] | None:
    """(rows, blocks) with the fewest blocks that fit, or None."""
    for blocks in range(1, most_blocks + 1):
        if blocks * block_width + (blocks - 1) * _BLOCK_GAP > width:
            return None
        rows = -(-num_layers // (layers_per_row * blocks))
        if rows <= height:
            return rows, blocks
    return None


class _Room(NamedTuple):
    """What a map of so many layers is to be laid into."""

    num_layers: int
    width: int
    height: int
    can_halve: bool
    count_width: int

    def lay(self, num_columns: int, experts_per_cell: int, layers_per_cell: int, is_by_slot: bool) -> HeatLayout | None:
        """The most legible layout with cells of that many experts and layers, or None."""
        forms = [(1, 2), (2, 2), (1, 1), (2, 1)] if self.can_halve else [(1, 2), (1, 1)]
        num_rows, num_cells = -(-self.num_layers // layers_per_cell), -(-num_columns // experts_per_cell)
        counts = (self.count_width, 0) if self.count_width and layers_per_cell == 1 else (0,)
        for (layers_per_row, cell_width), count_width in product(forms, counts):
            counted = count_width * layers_per_row
            block_width = LABEL_WIDTH + num_cells * cell_width + counted
            found = _fit(num_rows, block_width, self.width, self.height, layers_per_row, self.num_layers)
            if found is not None:
                return HeatLayout(
                    *found, cell_width, layers_per_row, experts_per_cell, layers_per_cell, is_by_slot, counted
                )
        return None


def plan_layout(
    num_layers: int,
    num_experts: int,
    width: int,
    height: int,
    *,
    can_halve: bool,
    num_slots: int | None = None,
    count_width: int = 0,
) -> HeatLayout | None:
    """The most legible layout that fits `width` x `height`; None when not even one cell does.

    In order of preference: a cell for each expert, wide or narrow, one layer a row or (if `can_halve`) two; a cell for
    each of `num_slots`, where they are fewer; then cells that stand for several experts, and only then for several
    layers. `count_width` asks for so many columns a layer for its number of slots, left out where they do not fit.
    """
    if num_layers < 1 or num_experts < 1 or width < LABEL_WIDTH + 1 or height < 1:
        return None
    room = _Room(num_layers, width, height, can_halve, count_width)
    found = room.lay(num_experts, 1, 1, False)
    if found is None and num_slots is not None and 0 < num_slots < num_experts:
        found = room.lay(num_slots, 1, 1, True)
    if found is not None:
        return found
    layer_groups = [1 << power for power in range(num_layers.bit_length() + 1)]
    expert_groups = [1 << power for power in range(num_experts.bit_length() + 1)]
    groups = sorted(product(layer_groups, expert_groups), key=lambda pair: (pair[0] * pair[1], pair[0]))
    layouts: Iterable[HeatLayout | None] = (room.lay(num_experts, experts, layers, False) for layers, experts in groups)
    return next((layout for layout in layouts if layout is not None), None)


def _grouped(codes: bytes) -> int:
    """One code for several experts: the most urgent state of any, else how many are resident."""
    for code in _URGENCY:
        if code in codes:
            return code
    present = len(codes) - codes.count(NOTHING)
    if not present:
        return NOTHING
    held = codes.count(RESIDENT) + codes.count(HOT)
    if held in (0, present):
        return RESIDENT if held else HOST
    return PARTLY[3 * held // present]


def cell_rows(residency: Sequence[bytes], num_columns: int, layout: HeatLayout) -> list[bytes]:
    """The codes of the cells, one row for each (group of) layers, all rows equally long."""
    padded = [codes.ljust(num_columns, bytes([NOTHING])) for codes in residency]
    if not layout.is_grouped:
        return padded
    rows = []
    for first in range(0, len(padded), layout.layers_per_cell):
        layers = padded[first : first + layout.layers_per_cell]
        spans = range(0, num_columns, layout.experts_per_cell)
        rows.append(
            bytes(
                _grouped(b"".join(codes[start : start + layout.experts_per_cell] for codes in layers))
                for start in spans
            )
        )
    return rows


_FREE = -1


class SlotPlaces:
    """A place is for looking at: it need not be the number of the slot in memory."""

    def __init__(self) -> None:
        self._places: list[list[int]] = []

    def rows(self, residency: Sequence[bytes], slots_per_layer: Sequence[int]) -> list[bytes]:
        """For each layer the codes of its slots, HOST where a slot is empty. Updates who has which place."""
        if len(self._places) != len(residency):
            self._places = [[] for _ in residency]
        return [
            self._row(places, codes, num_slots)
            for places, codes, num_slots in zip(self._places, residency, slots_per_layer, strict=True)
        ]

    def _row(self, places: list[int], codes: bytes, num_slots: int) -> bytes:
        held = {expert for expert, code in enumerate(codes) if code != HOST}
        places[:] = [expert if expert in held else _FREE for expert in places]
        places += [_FREE] * (num_slots - len(places))
        free = [place for place, expert in enumerate(places) if expert == _FREE]
        for expert in sorted(held.difference(places)):
            if free:
                places[free.pop(0)] = expert
            else:
                places.append(expert)
        while len(places) > num_slots and places[-1] == _FREE:
            places.pop()
        return bytes(HOST if expert == _FREE else codes[expert] for expert in places)
