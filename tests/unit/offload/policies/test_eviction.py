"""Eviction policies, by hand-made routing traces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import EVICTION_POLICIES, HISTORY_POLICIES, make_eviction
from offload.policies.eviction.history import HistoryEviction, HistoryWeights

GEOMETRY = Geometry(tuple(LayerGeometry(i, 6, 2, 64) for i in range(2)))
TRACE = [(0, 1), (0, 1), (0, 2), (3, 2)]
"""Layer 0: expert 0 three times, 1 twice, 2 twice, 3 once; last used: 1, then 0, then 2 and 3."""


def choose(policy, residents, num_victims, scores=None, layer=0, held=()):
    """The victims among these residents, which leave again afterwards."""
    for name in residents:
        policy.enter(0, *name)
    chosen = policy.victims(0, num_victims, held, scores, layer)
    for name in residents:
        policy.leave(0, *name)
    return chosen


def victim(policy, experts, scores=None, layer=0):
    return choose(policy, [(layer, expert) for expert in experts], 1, scores, layer)[0][1]


def fed(name, trace=TRACE):
    policy = make_eviction(name, GEOMETRY)
    for experts in trace:
        policy.observe(0, experts)
    return policy


@pytest.mark.parametrize(
    ("name", "resident", "expected"),
    [
        ("lru", [0, 1, 2, 3], 1),
        ("lru", [0, 2, 3], 0),
        ("lru", [3, 2], 2),
        ("lru", [0, 1, 5], 5),
        ("lfu", [0, 1, 2, 3], 3),
        ("lfu", [0, 1, 2], 1),
        ("lfu", [0, 2], 2),
        ("lfu", [0, 1, 5], 5),
        ("history", [0, 1, 2, 5], 5),
        ("history", [0, 1], 1),
        ("history", [1, 2], 1),
    ],
)
def test_victims_after_the_trace(name, resident, expected):
    assert victim(fed(name), resident) == expected
    assert victim(fed(name), resident[::-1]) == expected


@pytest.mark.parametrize("name", HISTORY_POLICIES)
def test_ties_go_to_the_lowest_layer_and_expert_whatever_the_order(name):
    policy = make_eviction(name, GEOMETRY)
    assert choose(policy, [(1, 0), (0, 4), (0, 3)], 3, None, 1) == [(0, 3), (0, 4), (1, 0)]


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_asking_for_a_victim_changes_nothing(name):
    policy = fed(name)
    assert len({victim(policy, [0, 1, 2, 3], np.arange(6.0)) for _ in range(5)}) == 1


def only(**weights):
    zero = {"count": 0.0, "ema": 0.0, "score": 0.0, "recency": 0.0}
    return HistoryEviction(GEOMETRY, HistoryWeights(**{**zero, **weights}))


def test_history_counts_within_its_window_only():
    policy = only(count=1.0, window_steps=3)
    for experts in [(0, 1), (0, 1), (2, 3), (2, 3), (4, 2)]:
        policy.observe(0, experts)
    assert victim(policy, [0, 3]) == 0, "expert 0's selections have left the window"
    assert victim(policy, [3, 4, 2]) == 4


def test_history_average_prefers_what_was_picked_lately():
    policy = only(ema=1.0, ema_decay=0.5)
    for experts in [(0,), (0,), (0,), (1,), (1,)]:
        policy.observe(0, experts)
    assert victim(policy, [0, 1]) == 0, "0.22 against 0.75"


def test_history_average_survives_a_long_life():
    policy = only(ema=1.0, ema_decay=0.5)
    for step in range(2000):
        policy.observe(0, (step % 2, 2))
    assert victim(policy, [0, 1, 2]) == 0
    assert victim(policy, [1, 2]) == 1


def test_history_recency_alone_is_lru():
    policy = only(recency=1.0)
    for experts in TRACE:
        policy.observe(0, experts)
    assert [victim(policy, [0, 1, 2, 3]), victim(policy, [0, 2])] == [1, 0]


def test_history_uses_the_scores_of_the_layer_that_asks_and_of_no_other():
    policy = only(score=1.0)
    scores = np.array([0.5, 0.1, 0.9, 0.3, 0.2, 0.4], dtype=np.float32)
    assert victim(policy, [0, 2, 3, 5], scores) == 3
    assert victim(policy, [0, 2, 3, 5], None) == 0
    assert choose(policy, [(1, 0), (0, 3)], 1, scores, 0) == [(1, 0)], (
        "layer 1 has no score, and an expert without one counts 0"
    )


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_history_takes_scores_that_are_not_numbers_for_the_lowest(bad):
    policy = only(score=1.0)
    assert victim(policy, [0, 1, 2], np.array([0.5, bad, 0.1, 0.2, 0.3, 0.4])) == 1
    assert victim(policy, [0, 1, 2], np.full(6, bad)) == 0


def test_history_takes_equal_scores_for_equal():
    assert victim(only(score=1.0), [2, 1], np.full(6, -7.0)) == 1
    assert victim(only(score=1.0), [3, 2], np.array([0, 5e-324, 0, 0, 0, 0])) == 2, "no overflow either"


@pytest.mark.parametrize("wrong", [{"count": -1.0}, {"window_steps": 0}, {"ema_decay": 1.0}, {"score": -0.1}])
def test_impossible_weights_are_refused(wrong):
    with pytest.raises(ValueError, match=r"negative|impossible"):
        HistoryWeights(**wrong)


def test_an_unknown_policy_is_refused_by_name():
    with pytest.raises(ValueError, match="'clock': choose one of history, lru, lfu"):
        make_eviction("clock", GEOMETRY)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sets(st.integers(0, 5), min_size=1, max_size=3).map(sorted)), max_size=30),
    st.sets(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=1).flatmap(lambda s: st.permutations(sorted(s))),
    st.booleans(),
    st.data(),
)
def test_choosing_several_victims_is_choosing_one_several_times(trace, candidates, has_scores, data):
    scores = np.array([0.5, 0.1, 0.9, 0.3, 0.3, 0.4]) if has_scores else None
    num_victims = data.draw(st.integers(1, len(candidates)))
    for name in EVICTION_POLICIES:
        policy = make_eviction(name, GEOMETRY)
        for layer, experts in trace:
            policy.observe(layer, experts)
        one_by_one = []
        for _ in range(num_victims):
            one_by_one += choose(policy, candidates, 1, scores, 1, held=set(one_by_one))
        assert choose(policy, candidates, num_victims, scores, 1) == one_by_one


@given(st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=3).map(sorted), max_size=30), st.permutations(range(6)))
def test_the_victim_does_not_depend_on_the_order_of_candidates(trace, order):
    for name in EVICTION_POLICIES:
        policy = fed(name, trace)
        assert victim(policy, list(order)) == victim(policy, list(range(6)))
