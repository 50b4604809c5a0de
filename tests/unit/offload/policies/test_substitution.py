"""Who may stand in for a miss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.policies.substitution import make_substitution

SCORES = [0.9, 0.5, 0.48, 0.47, 0.3, 0.1]
"""With top-3, expert 3 has rank 4: the boundary is 0.47."""


def choose(alpha, experts, resident, scores=SCORES, missed=None):
    rule = make_substitution("boundary", alpha)
    missed = set(experts) - set(resident) if missed is None else missed
    return rule.choose(experts, np.array(scores, dtype=np.float64), missed.__contains__, set(resident).__contains__)


@pytest.mark.parametrize(
    ("alpha", "resident", "expected"),
    [
        (0.02, {0, 1, 3, 4}, {2: 3}),
        (0.02, {0, 1, 4, 5}, {2: 4}),
        (0.02, {0, 3, 4}, {2: 3}),
        (0.04, {0, 3, 4}, {1: 3, 2: 4}),
        (0.04, {0, 4}, {1: 4}),
        (0.04, {0}, {}),
        (0.0, {0, 1, 3}, {}),
        (0.02, {1, 2, 3}, {}),
        (1.0, {3, 4, 5}, {0: 3, 1: 4, 2: 5}),
        (0.5, {0, 1, 2, 3}, {}),
    ],
)
def test_low_score_misses_get_the_best_resident_unselected(alpha, resident, expected):
    assert choose(alpha, [0, 1, 2], resident) == expected


def test_only_what_may_be_substituted_is():
    assert choose(1.0, [0, 1, 2], {3, 4}, missed={1}) == {1: 3}


def test_equal_scores_go_by_number():
    assert choose(0.1, [3, 1], {0, 2}, scores=[0.5] * 4) == {1: 0, 3: 2}


def test_exactly_alpha_is_within_alpha():
    assert choose(0.25, [0], {1}, scores=[0.75, 0.5, 0.25]) == {0: 1}


def test_a_miss_below_the_boundary_counts_as_low():
    """Group-limited routing may pass over the best-scoring expert."""
    assert choose(0.0, [2], {0}, scores=[0.9, 0.5, 0.4]) == {2: 0}


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_scores_that_are_not_numbers_take_no_part(bad):
    assert choose(0.1, [0], {1, 2}, scores=[0.5, bad, 0.45]) == {0: 2}
    assert choose(0.1, [0], {1, 2}, scores=[bad, 0.5, 0.45]) == {}
    assert choose(0.1, [0], {1, 2}, scores=[bad] * 3) == {}


def test_when_every_expert_is_selected_there_is_no_boundary():
    assert choose(1.0, [0, 1], set(), scores=[0.5, 0.5]) == {}


def test_none_and_bad_settings():
    assert make_substitution("none", 0.5).choose([0], np.ones(3), lambda _: True, lambda _: True) == {}
    with pytest.raises(ValueError, match="'always': choose one of boundary, none"):
        make_substitution("always", 0.1)
    for alpha in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="alpha is"):
            make_substitution("boundary", alpha)


@given(st.data())
def test_substitutes_are_resident_unselected_and_distinct(data):
    scores = data.draw(st.lists(st.floats(0, 1), min_size=8, max_size=8))
    resident = data.draw(st.sets(st.integers(0, 7)))
    alpha = data.draw(st.floats(0, 1))
    experts = sorted(range(8), key=lambda expert: (-scores[expert], expert))[:3]
    chosen = choose(alpha, experts, resident, scores=scores)
    boundary = max(scores[expert] for expert in range(8) if expert not in experts)
    assert set(chosen) <= set(experts) - resident
    assert set(chosen.values()) <= resident - set(experts)
    assert len(set(chosen.values())) == len(chosen)
    assert all(scores[missed] <= boundary + alpha for missed in chosen)
