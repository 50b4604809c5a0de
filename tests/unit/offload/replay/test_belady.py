"""Bounds: right by hand, the fewest by exhaustion, and below every policy."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import EVICTION_POLICIES, make_eviction
from offload.replay.belady import NEVER, belady_layer_loads, belady_pool_loads, next_uses
from offload.replay.belady_eviction import BeladyEviction
from offload.replay.replay import replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

NUM_EXPERTS = 5
GEOMETRY = Geometry(tuple(LayerGeometry(i, NUM_EXPERTS, 2, 64) for i in range(2)))
chosen = st.lists(st.integers(0, NUM_EXPERTS - 1), min_size=0, max_size=2, unique=True)


def make_trace(steps, geometry=GEOMETRY) -> RoutingTrace:
    ids = np.full((len(steps), geometry.num_layers, 2), NO_EXPERT, np.uint16)
    for t, step in enumerate(steps):
        for layer, experts in enumerate(step):
            ids[t, layer, : len(experts)] = experts
    empty = np.full_like(ids, NO_EXPERT)
    return RoutingTrace("m", "", geometry, ids, empty, None, np.zeros(len(steps), bool), np.zeros(1, np.int64))


traces = st.lists(st.tuples(chosen, chosen), min_size=1, max_size=12)


def test_next_uses():
    trace = make_trace([[[0, 1], [2]], [[1], [2, 3]], [[0], []]])
    following, first = next_uses(trace.ids, NUM_EXPERTS)
    assert following[0].tolist() == [[4, 2], [3, NEVER]]
    assert following[1].tolist() == [[NEVER, NEVER], [NEVER, NEVER]]
    assert first.tolist() == [[0, 0, NEVER, NEVER, NEVER], [NEVER, NEVER, 1, 3, NEVER]]


def test_a_pool_takes_from_the_layer_that_needs_nothing():
    steps = [[[t % 4], [0]] for t in range(8)]
    assert belady_layer_loads(make_trace(steps), [2, 2]) == (6, 1)
    assert belady_pool_loads(make_trace(steps), [2, 2]) == 4 + 1 + 1, "3 of layer 0's four stay"
    assert belady_pool_loads(make_trace(steps), [2, 3]) == 4 + 1
    assert belady_pool_loads(make_trace(steps), [2, 3], [[0, 1, 2, 3], [0]]) == 0


def test_what_does_not_fit_at_the_start_is_refused():
    with pytest.raises(ValueError, match="3 experts are resident"):
        belady_pool_loads(make_trace([[[0], [0]]]), [1, 1], [[0, 1], [2]])


def test_unequal_slots_are_counted_in_the_smallest():
    geometry = Geometry((LayerGeometry(0, NUM_EXPERTS, 2, 4096), LayerGeometry(1, NUM_EXPERTS, 2, 3 * 4096)))
    steps = [[[t % 4], []] for t in range(8)]
    assert belady_pool_loads(make_trace(steps, geometry), [1, 1]) == 4


def fewest_loads(steps, num_slots, initial) -> int:
    """By trying everything: after each layer's step, any subset may stay."""
    events = [tuple((layer, expert) for expert in experts) for step in steps for layer, experts in enumerate(step)]

    @cache
    def loads(event, resident):
        if event == len(events):
            return 0
        there = resident | set(events[event])
        missing = len(there) - len(resident)
        keep = min(num_slots, len(there))
        return missing + min(loads(event + 1, frozenset(kept)) for kept in combinations(sorted(there), keep))

    return loads(0, frozenset(initial))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(chosen, chosen), min_size=1, max_size=4), st.integers(1, 4))
def test_the_pool_bound_is_the_fewest(steps, num_slots):
    initial = [[0], []]
    assert belady_pool_loads(make_trace(steps), [num_slots, 0], initial) == fewest_loads(steps, num_slots, [(0, 0)])


@settings(max_examples=150, deadline=None)
@given(traces, st.integers(2, 5), st.integers(2, 5), st.lists(st.integers(0, 4), max_size=2, unique=True))
def test_no_policy_loads_less(steps, first_slots, second_slots, initial):
    trace, slots = make_trace(steps), [first_slots, second_slots]
    start = [initial, initial]
    per_layer = belady_layer_loads(trace, slots, start)
    pool = belady_pool_loads(trace, slots, start)
    assert pool <= sum(per_layer)
    clairvoyant = replay(trace, BeladyEviction(trace), slots, initial=start)
    shared = {"initial": start, "group_of_layer": [0, 0]}
    assert pool <= replay(trace, BeladyEviction(trace), [sum(slots)], **shared).loads
    for name in EVICTION_POLICIES:
        result = replay(trace, make_eviction(name, GEOMETRY), slots, initial=start)
        for layer in range(2):
            assert per_layer[layer] <= clairvoyant.layers[layer].loads <= result.layers[layer].loads
        assert pool <= replay(trace, make_eviction(name, GEOMETRY), [sum(slots)], **shared).loads


def test_the_policy_that_knows_the_future_knows_one_future():
    policy = BeladyEviction(make_trace([[[0, 1], [2]]]))
    with pytest.raises(ValueError, match="step 0 of layer 0"):
        policy.observe(0, [1, 0])
    policy.observe(0, [0, 1])
    with pytest.raises(ValueError, match="step 1 of layer 0"):
        policy.observe(0, [0, 1])
