"""Prefetchers."""

import pytest

from offload.prefetch import make_prefetcher


@pytest.mark.parametrize(
    ("depth", "absent", "expected"),
    [
        (1, {3, 5, 7}, [3]),
        (2, {5, 7}, [5, 7]),
        (2, {7, 3}, [3, 7]),
        (9, {5}, [5]),
        (2, set(), []),
        (0, {3, 5}, []),
    ],
)
def test_router_ahead_takes_the_best_ranked_absent_ones(depth, absent, expected):
    assert make_prefetcher("router-ahead", depth).plan([3, 5, 1, 7], absent.__contains__) == expected


def test_a_prediction_is_asked_for_only_where_it_is_used():
    assert make_prefetcher("router-ahead", 1).needs_prediction
    assert not make_prefetcher("router-ahead", 0).needs_prediction
    assert not make_prefetcher("none", 1).needs_prediction


def test_none_fetches_nothing():
    assert make_prefetcher("none", 4).plan([1, 2], lambda expert: True) == []


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="'oracle': choose one of router-ahead, none"):
        make_prefetcher("oracle", 1)
    with pytest.raises(ValueError, match="depth is -1"):
        make_prefetcher("router-ahead", -1)
