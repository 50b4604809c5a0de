"""Charts of block characters: parts that are there are seen, and wholes are filled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.ui.widgets.charts import Part, columns, divided_bar, stacked

_PARTS = (Part("hit", "green", "█"), Part("late", "yellow", "▒"), Part("miss", "red", "·"))


def test_a_column_is_divided_from_the_bottom_up() -> None:
    top, bottom = stacked([(3, 0, 1)], 5, 2, _PARTS, can_colour=True)
    assert (top.plain, bottom.plain) == ("▄", "█")
    assert [span.style for span in top.spans] == ["green on red"]
    assert [span.style for span in bottom.spans] == ["green"]


def test_without_colours_parts_differ_by_glyph() -> None:
    lines = stacked([(4, 2, 2), (8, 0, 0)], 5, 4, _PARTS, can_colour=False)
    assert [line.plain for line in lines] == ["·█", "▒█", "██", "██"]


def test_only_the_last_columns_are_shown() -> None:
    assert stacked([(1, 0, 0)] * 9 + [(0, 0, 1)], 2, 1, _PARTS, can_colour=False)[0].plain == "█·"


@given(
    values=st.lists(st.integers(0, 5000), min_size=3, max_size=3).filter(any),
    height=st.integers(1, 12),
    can_colour=st.booleans(),
)
def test_stacks_fill_their_room(values: list[int], height: int, can_colour: bool) -> None:
    lines = stacked([values] * 3, 10, height, _PARTS, can_colour=can_colour)
    assert len(lines) == height
    assert all(line.cell_length == 3 for line in lines)
    assert " " not in lines[0].plain or not can_colour


def test_columns_reach_up_to_the_top_and_a_gap_stays_empty() -> None:
    lines = columns([10.0, None, 5.0, 0.01], 10, 2, 10.0, "blue")
    assert [line.plain for line in lines] == ["█   ", "█ █▁"]


def test_a_bar_is_divided_and_dotted_where_something_is_left() -> None:
    bar = divided_bar([4, 2, 1], 10, 10, _PARTS, can_colour=False)
    assert bar.plain == "████▒▒····"
    assert divided_bar([4, 2, 4], 0, 5, _PARTS, can_colour=True).plain == "·····"
