"""From pairs of times to a ratio, its interval, and what they say of the limit."""

from __future__ import annotations

import pytest

from devtools.screen_cost.cost import Answer, Pair, ScreenCost
from devtools.screen_cost.paired_ratio import BEYOND, UNDECIDED, WITHIN, PairedRatio


def _pairs(*ratios: float, headless_ms: float = 40.0) -> list[Pair]:
    return [Pair(Answer(ratio * headless_ms, 48, 0.1), Answer(headless_ms, 48, 0.01)) for ratio in ratios]


def test_the_ratio_is_that_of_the_middle_pair() -> None:
    ratio = PairedRatio.of([(20.0, 10.0), (11.0, 10.0), (50.0, 100.0)])
    assert ratio.median == pytest.approx(1.1)
    assert (ratio.low, ratio.high) == (0.5, 2.0)
    assert ratio.num_pairs == 3


def test_a_pair_that_was_disturbed_both_ways_changes_nothing() -> None:
    assert PairedRatio.of([(101.0, 100.0), (404.0, 400.0)]) == PairedRatio.of([(101.0, 100.0)] * 2)


def test_more_pairs_make_the_interval_narrower() -> None:
    few, many = (PairedRatio.of([(100.0 + number, 100.0) for number in range(11)] * times) for times in (1, 20))
    assert few.median == many.median == pytest.approx(1.05)
    assert few.low < many.low <= many.median <= many.high < few.high


def test_the_interval_is_the_same_whenever_it_is_made() -> None:
    pairs = [(100.0 + number % 7, 100.0) for number in range(20)]
    assert PairedRatio.of(pairs) == PairedRatio.of(pairs)


@pytest.mark.parametrize(
    ("ratios", "verdict", "is_ok"),
    [((1.0, 1.01, 1.0), WITHIN, True), ((0.9, 1.02, 1.2), UNDECIDED, True), ((1.03, 1.05, 1.04), BEYOND, False)],
)
def test_only_an_interval_beyond_the_limit_fails(ratios: tuple[float, ...], verdict: str, is_ok: bool) -> None:
    cost = ScreenCost(_pairs(*ratios), "2 compute")
    assert (cost.verdict, cost.is_ok) == (verdict, is_ok)
    assert verdict in cost.lines()[-1]


def test_answers_of_another_length_are_counted() -> None:
    pairs = [*_pairs(1.0, 1.0), Pair(Answer(40.0, 47, 0.1), Answer(40.0, 48, 0.0))]
    cost = ScreenCost(pairs, "2 compute")
    assert "equally long in 2 of 3" in "\n".join(cost.lines())
    assert cost.as_dict()["num_pairs_of_equal_length"] == 2
