"""The heatmap fits any model into any room, and says when a cell stands for more than one expert."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ui.widgets.heat_layout import LABEL_WIDTH, NOTHING, PARTLY, HeatLayout, cell_rows, plan_layout
from engine.events import HOST, IN_USE, LOADING, RESIDENT, SUBSTITUTE


@pytest.mark.parametrize(
    ("shape", "room", "can_halve", "expected"),
    [
        ((30, 16), (43, 30), True, HeatLayout(30, 1, 2, 1, 1, 1)),
        ((30, 16), (43, 15), True, HeatLayout(15, 1, 2, 2, 1, 1)),
        ((30, 16), (43, 15), False, HeatLayout(15, 2, 1, 1, 1, 1)),
        ((30, 16), (43, 8), True, HeatLayout(8, 2, 1, 2, 1, 1)),
        ((48, 128), (69, 24), True, HeatLayout(24, 1, 1, 2, 2, 1)),
        ((1, 4), (4, 1), True, HeatLayout(1, 1, 1, 1, 4, 1)),
    ],
)
def test_known_rooms(shape: tuple[int, int], room: tuple[int, int], can_halve: bool, expected: HeatLayout) -> None:
    assert plan_layout(*shape, *room, can_halve=can_halve) == expected


def test_no_room_at_all() -> None:
    assert plan_layout(30, 16, 3, 10, can_halve=True) is None
    assert plan_layout(30, 16, 40, 0, can_halve=True) is None
    assert plan_layout(0, 0, 40, 10, can_halve=True) is None


@given(
    num_layers=st.integers(1, 128),
    num_experts=st.integers(1, 512),
    width=st.integers(LABEL_WIDTH + 1, 120),
    height=st.integers(1, 60),
    can_halve=st.booleans(),
)
def test_it_always_fits_and_leaves_no_expert_out(
    num_layers: int, num_experts: int, width: int, height: int, can_halve: bool
) -> None:
    layout = plan_layout(num_layers, num_experts, width, height, can_halve=can_halve)
    assert layout is not None
    assert layout.rows <= height
    assert layout.layers_per_row == 1 or can_halve
    rows = cell_rows([bytes(num_experts)] * num_layers, num_experts, layout)
    assert len(rows) * layout.layers_per_cell >= num_layers
    assert layout.rows * layout.blocks * layout.layers_per_row >= len(rows)
    num_cells = len(rows[0])
    assert num_cells * layout.experts_per_cell >= num_experts
    assert layout.blocks * (LABEL_WIDTH + num_cells * layout.cell_width) <= width
    assert bool(layout.notes) == layout.is_grouped


def test_groups_show_the_most_urgent_state_else_how_many_are_resident() -> None:
    layout = HeatLayout(1, 1, 1, 1, 4, 1)
    codes = bytes(
        [
            *(HOST, HOST, HOST, SUBSTITUTE),
            *(HOST, IN_USE, LOADING, HOST),
            *(RESIDENT, RESIDENT, HOST, HOST),
            *(HOST, HOST, HOST, RESIDENT),
            RESIDENT,
        ]
    )
    assert cell_rows([codes], 17, layout) == [bytes([SUBSTITUTE, LOADING, PARTLY[1], PARTLY[0], RESIDENT])]
    assert layout.notes[0] == "1 cell = 4 experts"


def test_slots_are_shown_where_experts_have_no_room_each() -> None:
    by_slot = plan_layout(48, 128, 43, 24, can_halve=True, num_slots=32)
    assert by_slot == HeatLayout(24, 1, 1, 2, 1, 1, is_by_slot=True)
    assert by_slot.notes[0] == "1 cell = 1 slot"
    grouped = plan_layout(48, 128, 43, 24, can_halve=True, num_slots=64)
    assert grouped is not None
    assert grouped.notes[0] == "1 cell = 4 experts"


def test_slot_counts_take_columns_only_where_there_are_any() -> None:
    counted = plan_layout(30, 16, 43, 15, can_halve=True, count_width=3)
    assert counted == HeatLayout(15, 1, 2, 2, 1, 1, count_width=6)
    without = plan_layout(30, 16, 36, 15, can_halve=True, count_width=3)
    assert without == HeatLayout(15, 1, 2, 2, 1, 1)


@pytest.mark.parametrize("layout", [HeatLayout(15, 1, 2, 2, 1, 1), HeatLayout(8, 2, 1, 2, 1, 1, count_width=4)])
def test_a_place_of_the_map_names_its_layer(layout: HeatLayout) -> None:
    block_width = LABEL_WIDTH + 16 * layout.cell_width + layout.count_width + 2
    for layer in range(0, 30, 2):
        block, line = divmod(layer // layout.layers_per_row, layout.rows)
        assert layout.layer_at(block * block_width + 5, line, 16) == layer


def test_layers_with_fewer_experts_are_filled_up() -> None:
    layout = HeatLayout(2, 1, 1, 1, 1, 1)
    assert cell_rows([bytes([1, 1, 1]), bytes([1])], 3, layout)[1] == bytes([1, NOTHING, NOTHING])
