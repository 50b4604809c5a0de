"""Activation matrices: matching, prefetch order, eviction, the collection. After the MoE-Infinity paper's formulas."""

import numpy as np
import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.policies.activations.collection import ActivationCollection
from offload.policies.activations.tracker import ActivationTracker
from offload.policies.eviction import make_eviction
from offload.policies.inputs import PolicyInputs
from offload.policies.prefetch import Outlook, make_prefetcher
from offload.policies.routing_observer import RoutingFeed

GEOMETRY = Geometry(tuple(LayerGeometry(i, 4, 2, 64) for i in range(3)))


def matrix(*rows):
    return np.array(rows, np.int64)


MATHS = matrix([9, 1, 0, 0], [0, 0, 8, 2], [5, 5, 0, 0])
CODE = matrix([0, 0, 2, 8], [6, 4, 0, 0], [0, 0, 1, 9])


def tracker_of(*matrices, capacity=4):
    collection = ActivationCollection(GEOMETRY, capacity)
    for each in matrices:
        collection.add(each)
    return ActivationTracker(GEOMETRY, collection)


def test_the_iteration_so_far_finds_the_request_it_resembles():
    tracker = tracker_of(MATHS, CODE)
    tracker.begin_request()
    tracker.begin_iteration(is_decode=True)
    assert tracker.match is None
    tracker.routed(0, [2, 3], [1, 1])
    assert tracker.match == 1
    tracker.begin_iteration(is_decode=True)
    tracker.routed(0, [0, 1], [1, 1])
    assert tracker.match == 0
    tracker.routed(1, [0, 1], [1, 1])
    assert tracker.match == 1, "two rows: 0.5/0.5 against 0.6/0.4 weighs more than the first row's 0.9/0.1"


def test_matching_row_by_row_is_the_cosine_of_the_rows_known():
    chance = np.random.default_rng(0)
    stored = [chance.integers(0, 9, (3, 4)) for _ in range(4)]
    tracker = tracker_of(*stored)
    for _ in range(50):
        tracker.begin_iteration(is_decode=True)
        own = np.zeros((3, 4))
        for layer in range(3):
            experts = chance.choice(4, 2, replace=False).tolist()
            own[layer, experts] = 0.5
            tracker.routed(layer, experts, [1, 1])
            rows = [s / np.maximum(s.sum(1, keepdims=True), 1) for s in stored]
            cosines = [(own * r)[: layer + 1].sum() / np.linalg.norm(r[: layer + 1]) for r in rows]
            assert cosines[tracker.match] == pytest.approx(max(cosines))


def test_prefetches_decay_with_distance():
    tracker = tracker_of(MATHS)
    tracker.begin_request()
    tracker.begin_iteration(is_decode=True)
    tracker.routed(0, [0, 1], [1, 1])
    # 0.8 x 2/3, 0.2 x 2/3 of the next layer; 0.5 x 1/3 twice of the one behind it
    assert list(tracker.prefetch_order(0)) == [(1, 2), (2, 0), (2, 1), (1, 3)]
    assert list(tracker.prefetch_order(2)) == []


def test_prefetcher_fills_up_to_its_depth():
    inputs = PolicyInputs(GEOMETRY, depth=2)
    inputs.activations.collection.add(MATHS)
    prefetcher = make_prefetcher("activation", inputs)
    feed = RoutingFeed(inputs.observers)
    feed.decoded(0, [0, 1])
    absent = {(1, 2), (2, 1), (1, 3)}

    def plan(num_in_flight):
        return prefetcher.plan(
            Outlook(layer=0, is_absent=lambda *name: name in absent, count_in_flight=lambda: num_in_flight)
        )

    assert plan(0) == [(1, 2), (2, 1)]
    assert plan(1) == [(1, 2)]
    assert plan(2) == []


def test_eviction_takes_the_lowest_priority_and_late_layers_before_early_ones():
    inputs = PolicyInputs(GEOMETRY)
    inputs.activations.collection.add(MATHS)
    policy = make_eviction("activation", inputs)
    feed = RoutingFeed(inputs.observers)
    for name in [(0, 0), (0, 2), (1, 0), (2, 3), (2, 0)]:
        policy.enter(0, *name)
    feed.decoded(0, [0, 1])
    assert policy.victims(0, 5, {(0, 0)}, None, 1) == [(2, 3), (1, 0), (0, 2), (2, 0)]
    assert policy.victims(0, 1, set(), None, 1) == [(2, 3)]


def test_a_prefetch_is_not_evicted_before_its_layer():
    inputs = PolicyInputs(GEOMETRY)
    inputs.activations.collection.add(MATHS)
    policy = make_eviction("activation", inputs)
    feed = RoutingFeed(inputs.observers)
    policy.enter(0, 2, 1)
    for layer, experts in enumerate(([0, 1], [2, 3])):
        feed.decoded(layer, experts)
        policy.observe(layer, experts)
        policy.enter(0, layer, experts[0])
        policy.enter(0, 2, 0)
        assert policy.victims(0, 4, set(), None, layer)[0] == (2, 1), "of the same layer, and in no prefetch"
        assert policy.victims(0, 4, set(), None, layer)[-1] == (2, 0), "fetched for a layer that is still to come"
    feed.decoded(2, [0, 1])
    policy.observe(2, [0, 1])
    assert policy.victims(0, 1, {(2, 1)}, None, 2) == [(2, 0)], "its layer has run"


def test_without_past_requests_a_request_goes_by_itself_and_prefetches_nothing():
    inputs = PolicyInputs(GEOMETRY)
    policy, prefetcher = make_eviction("activation", inputs), make_prefetcher("activation", inputs)
    feed = RoutingFeed(inputs.observers)
    feed.prefilled(0, [1], [7])
    feed.decoded(0, [2, 3])
    assert prefetcher.plan(Outlook(layer=0)) == []
    for expert in range(4):
        policy.enter(0, 0, expert)
    assert policy.victims(0, 2, set(), None, 0) == [(0, 0), (0, 1)], "prefill's counts are kept apart"


def test_a_request_ends_with_the_next_prompt_and_joins_the_collection():
    inputs = PolicyInputs(GEOMETRY)
    make_eviction("activation", inputs)
    collection = inputs.activations.collection
    feed = RoutingFeed(inputs.observers)
    feed.prefilled(0, [1, 2], [3, 1])
    feed.prefilled(0, [1], [3])
    assert collection.size == 0, "chunks of one prompt"
    for _ in range(3):
        for layer in range(3):
            feed.decoded(layer, [layer, 3])
    feed.prefilled(0, [1], [3])
    assert collection.size == 1
    assert collection.counts(0).tolist() == [[3, 0, 0, 3], [0, 3, 0, 3], [0, 0, 3, 3]]
    feed.end_request()
    feed.end_request()
    assert collection.size == 1, "a request without a token of an answer leaves nothing"


def test_a_full_collection_gives_up_its_most_similar_entry():
    collection = ActivationCollection(GEOMETRY, 2)
    collection.add(MATHS)
    collection.add(CODE)
    collection.add(MATHS * 2 + 1)
    assert collection.size == 2
    assert (collection.counts(0) == MATHS * 2 + 1).all()
    assert (collection.counts(1) == CODE).all()
    with pytest.raises(ValueError, match="in a collection of"):
        collection.add(np.ones((2, 4), np.int64))
