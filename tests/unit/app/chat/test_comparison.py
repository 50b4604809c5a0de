"""Comparing an exact and an approximate answer: which are compared, and where their texts part."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.chat.comparison import ASKED, MODE, SAMPLING, counterpart, mode_of, other_mode, parting, remarks, speed_ratio
from app.storage.records import ASSISTANT, TurnRecord
from engine.config import APPROX, EXACT
from engine.events import LABEL_APPROX, LABEL_APPROX_CONTEXT, LABEL_EXACT


def _answer(
    label: str, mode: str | None = None, text: str = "yes", *, sampling: dict[str, Any] | None = None, **stats: Any
) -> TurnRecord:
    asked = {ASKED: {MODE: mode, SAMPLING: sampling or {}}} if mode else {}
    return TurnRecord("c", 1, ASSISTANT, text, mode_label=label, stats={**asked, **stats})


def test_texts_part_at_a_whole_word() -> None:
    assert parting("the same", "the same") is None
    assert parting("the capital is Paris", "the capital is Parma") == (15, 4, 1)
    assert parting("one\ntwo three", "one\ntwo") == (4, 2, 2)
    assert parting("a", "b") == (0, 1, 1)


@given(st.text(), st.text(), st.text())
def test_what_is_before_the_parting_is_shared(shared: str, one: str, other: str) -> None:
    one, other = shared + one, shared + other
    found = parting(one, other)
    assert (found is None) == (one == other)
    if found is not None:
        assert one[: found.at] == other[: found.at]
        assert found.at == 0 or one[found.at - 1].isspace()


def test_an_answer_without_substitutions_under_approx_is_no_answer_under_exact() -> None:
    lucky = _answer(LABEL_EXACT, APPROX)
    assert mode_of(lucky) == APPROX
    assert other_mode(lucky) == EXACT
    assert other_mode(_answer(LABEL_EXACT, EXACT)) == APPROX
    assert mode_of(_answer(LABEL_EXACT)) == EXACT  # older records say no more
    assert other_mode(_answer(LABEL_APPROX_CONTEXT, EXACT)) == EXACT  # an exact one is wanted, on an exact context


def test_an_answer_whose_mode_changed_meanwhile_stands_for_neither() -> None:
    mixed = _answer(LABEL_APPROX, EXACT)
    mixed.markers.append("exact → approx at token 3")
    assert mode_of(mixed) is None
    exact = _answer(LABEL_EXACT, EXACT)
    assert counterpart(exact, [mixed]) is None


def test_the_newest_whole_answer_in_the_other_mode_is_taken() -> None:
    exact, old, new = _answer(LABEL_EXACT, EXACT), _answer(LABEL_APPROX, APPROX), _answer(LABEL_APPROX, APPROX)
    old.created_at, new.created_at = "2026-01-01T00:00:00.000+00:00", "2026-01-02T00:00:00.000+00:00"
    empty = _answer(LABEL_APPROX, APPROX, text=" ")
    empty.created_at = "2026-01-03T00:00:00.000+00:00"
    assert counterpart(exact, [new, old, empty, exact]) is new
    assert counterpart(new, [old, _answer(LABEL_APPROX_CONTEXT, EXACT)]) is None


def test_what_else_makes_a_difference_is_told() -> None:
    greedy = {"temperature": 0, "seed": None}
    assert remarks(_answer("", EXACT, sampling=greedy), _answer("", APPROX, sampling=greedy)) == []
    seeded = {"temperature": 0.7, "seed": 3}
    assert remarks(_answer("", EXACT, sampling=seeded), _answer("", APPROX, sampling=seeded)) == []
    other = _answer("", APPROX, text="no", sampling=greedy)
    (said,) = remarks(_answer("", EXACT, sampling=seeded), other)
    assert "at random" in said
    assert "two models" in remarks(_answer("", EXACT, model="a"), _answer("", APPROX, model="b"))[0]
    assert "two ways" in remarks(_answer("", runs_on="ggml, Q4_K"), _answer("", runs_on="ggml, Q8_0"))[0]


def test_the_ratio_of_times_is_told_where_both_are_known() -> None:
    assert speed_ratio(_answer("", tpot_ms=50.0), _answer("", tpot_ms=40.0)) == 0.8
    assert speed_ratio(_answer("", tpot_ms=None), _answer("", tpot_ms=40.0)) is None
