"""In the map by slot an expert keeps its place until it leaves, and who comes takes a free one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.ui.widgets.heat_layout import SlotPlaces
from engine.events import HOST, IN_USE, LOADING, RESIDENT


def test_experts_keep_their_places_and_newcomers_take_free_ones() -> None:
    places = SlotPlaces()
    assert places.rows([bytes([RESIDENT, HOST, RESIDENT, HOST])], [3]) == [bytes([RESIDENT, RESIDENT, HOST])]
    assert places.rows([bytes([HOST, LOADING, IN_USE, HOST])], [3]) == [bytes([LOADING, IN_USE, HOST])]
    assert places.rows([bytes([RESIDENT, RESIDENT, IN_USE, HOST])], [3]) == [bytes([RESIDENT, IN_USE, RESIDENT])]


def test_more_than_there_are_slots_for_is_shown_all_the_same() -> None:
    places = SlotPlaces()
    assert len(places.rows([bytes([RESIDENT] * 4)], [3])[0]) == 4
    assert places.rows([bytes([RESIDENT] * 2 + [HOST] * 2)], [3]) == [bytes([RESIDENT, RESIDENT, HOST])]


@given(st.lists(st.binary(min_size=6, max_size=6).map(lambda row: bytes(code % 4 for code in row)), max_size=8))
def test_no_expert_on_the_device_is_lost(states: list[bytes]) -> None:
    places = SlotPlaces()
    for codes in states:
        (row,) = places.rows([codes], [4])
        held = sorted(code for code in codes if code != HOST)
        assert sorted(code for code in row if code != HOST) == held
        assert len(row) >= 4
