"""How a map of layers x experts is laid into a given room, whatever its shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from engine.events import ARRIVING, HOST, IN_USE, RESIDENT, SUBSTITUTE

NOTHING = 5
"""Code of a cell beyond the last expert of a layer that has fewer than the widest."""

LABEL_WIDTH = 3
"""Columns of a layer's number and the gap after it."""

_BLOCK_GAP = 2
_URGENCY = (SUBSTITUTE, ARRIVING, IN_USE)
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

    @property
    def is_grouped(self) -> bool:
        """A cell stands for more than one expert."""
        return self.experts_per_cell > 1 or self.layers_per_cell > 1

    @property
    def note(self) -> str:
        """What one cell stands for, when that is more than one expert."""
        return f"1 cell = {self.experts_per_cell * self.layers_per_cell} experts" if self.is_grouped else ""


def _fit(
    num_layers: int, num_cells: int, width: int, height: int, cell_width: int, layers_per_row: int
) -> tuple[int, int] | None:
    """(rows, blocks) with the fewest blocks that fit, or None."""
    block_width = LABEL_WIDTH + num_cells * cell_width
    blocks = 1
    while blocks * block_width + (blocks - 1) * _BLOCK_GAP <= width:
        rows = -(-num_layers // (layers_per_row * blocks))
        if rows <= height:
            return rows, blocks
        blocks += 1
    return None


def plan_layout(num_layers: int, num_experts: int, width: int, height: int, *, can_halve: bool) -> HeatLayout | None:
    """The most legible layout that fits `width` x `height`; None when not even one cell does.

    In order of preference: a cell for each expert, wide or narrow, one layer a row or (if `can_halve`) two;
    then cells that stand for several experts, and only then for several layers.
    """
    if num_layers < 1 or num_experts < 1 or width < LABEL_WIDTH + 1 or height < 1:
        return None
    forms = [(1, 2), (2, 2), (1, 1), (2, 1)] if can_halve else [(1, 2), (1, 1)]
    layer_groups = [1 << power for power in range(num_layers.bit_length() + 1)]
    expert_groups = [1 << power for power in range(num_experts.bit_length() + 1)]
    for layers_per_cell, experts_per_cell in sorted(
        product(layer_groups, expert_groups), key=lambda pair: (pair[0] * pair[1], pair[0])
    ):
        for layers_per_row, cell_width in forms:
            num_rows, num_cells = -(-num_layers // layers_per_cell), -(-num_experts // experts_per_cell)
            found = _fit(num_rows, num_cells, width, height, cell_width, layers_per_row)
            if found is not None:
                return HeatLayout(*found, cell_width, layers_per_row, experts_per_cell, layers_per_cell)
    return None


def _grouped(codes: bytes) -> int:
    """One code for several experts: the most urgent state of any, else that of the majority."""
    for code in _URGENCY:
        if code in codes:
            return code
    present = len(codes) - codes.count(NOTHING)
    if not present:
        return NOTHING
    return RESIDENT if 2 * codes.count(RESIDENT) >= present else HOST


def cell_rows(residency: Sequence[bytes], num_experts: int, layout: HeatLayout) -> list[bytes]:
    """The codes of the cells, one row for each (group of) layers, all rows equally long."""
    padded = [codes.ljust(num_experts, bytes([NOTHING])) for codes in residency]
    if not layout.is_grouped:
        return padded
    rows = []
    for first in range(0, len(padded), layout.layers_per_cell):
        layers = padded[first : first + layout.layers_per_cell]
        spans = range(0, num_experts, layout.experts_per_cell)
        rows.append(
            bytes(
                _grouped(b"".join(codes[start : start + layout.experts_per_cell] for codes in layers))
                for start in spans
            )
        )
    return rows
