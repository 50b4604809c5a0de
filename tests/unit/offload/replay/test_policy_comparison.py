"""Policies and bounds on one trace."""

import numpy as np
import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryEviction, HistoryWeights
from offload.replay.belady import belady_layer_loads, belady_pool_loads
from offload.replay.policy_comparison import BELADY, REPLAY_POLICIES, TUNED, compare_policies, prediction_recall
from offload.replay.replay import PrefetchModel, replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

GEOMETRY = Geometry((LayerGeometry(0, 6, 2, 64), LayerGeometry(1, 8, 3, 64)))
SLOTS = (3, 4)


def make_trace(has_predictions=True, num_steps=60) -> RoutingTrace:
    random = np.random.default_rng(0)
    ids = np.full((num_steps, 2, 3), NO_EXPERT, np.uint16)
    for step in range(num_steps):
        ids[step, 0, :2] = random.permutation(6)[:2]
        ids[step, 1] = random.permutation(8)[:3]
    predicted = np.full_like(ids, NO_EXPERT)
    if has_predictions:
        predicted[:, 1] = ids[:, 1]
        predicted[1::2, 1, 1:] = NO_EXPERT
    flags = np.arange(num_steps) < 10
    return RoutingTrace("m", "maths", GEOMETRY, ids, predicted, None, flags, np.zeros(1, np.int64))


def test_every_policy_is_what_a_replay_of_it_finds():
    trace, weights = make_trace(), HistoryWeights(count=0.0, ema=3.0)
    found = compare_policies(trace, SLOTS, REPLAY_POLICIES, tuned=weights)
    assert tuple(found.results) == REPLAY_POLICIES
    for name in ("lru", "lfu", "history"):
        assert found.results[name] == replay(trace, make_eviction(name, GEOMETRY), SLOTS)
    assert found.results[TUNED] == replay(trace, HistoryEviction(GEOMETRY, weights), SLOTS)
    assert found.belady_pool_loads == belady_pool_loads(trace, SLOTS)
    assert found.belady_layer_loads == belady_layer_loads(trace, SLOTS)
    least = min(result.loads for result in found.results.values())
    assert found.belady_pool_loads <= sum(found.belady_layer_loads) <= least == found.results[BELADY].loads
    assert found.prefetched == {}, "none was asked for"


def test_recorded_predictions_are_prefetched():
    trace, model = make_trace(), PrefetchModel(depth=2, hidden_copies=2)
    found = compare_policies(trace, SLOTS, ("lru", "lfu"), model)
    assert found.prefetched["lru"] == replay(trace, make_eviction("lru", GEOMETRY), SLOTS, prefetch=model)
    assert found.prefetched["lru"].total.prefetch_useful > 0
    assert set(found.prefetched) == {"lru", "lfu"}


def test_without_predictions_there_is_nothing_to_prefetch():
    found = compare_policies(make_trace(has_predictions=False), SLOTS, ("lru",), PrefetchModel(1, 1))
    assert not found.has_predictions
    assert (found.prefetched, found.recall) == ({}, (None, None))


def test_recall_counts_chosen_experts_that_were_predicted():
    ids = np.array([[[0, 1, NO_EXPERT], [1, 2, 3]], [[2, 3, NO_EXPERT], [4, 5, 6]], [[0, 1, NO_EXPERT], [0, 1, 2]]])
    predicted = np.full_like(ids, NO_EXPERT)
    predicted[0, 1], predicted[1, 1] = [3, 2, 7], [0, 4, NO_EXPERT]
    trace = RoutingTrace(
        "m",
        "",
        GEOMETRY,
        ids.astype(np.uint16),
        predicted.astype(np.uint16),
        None,
        np.zeros(3, bool),
        np.zeros(1, np.int64),
    )
    assert prediction_recall(trace) == (None, 3 / 6), "the third step had no prediction"


def test_progress_is_told_before_every_replay_and_can_stop_them():
    told = []

    def stop(stage, done, total):
        told.append((stage, done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_policies(make_trace(), SLOTS, ("lru", "lfu"), PrefetchModel(1, 1), on_progress=stop)
    assert told == [("lru", 0, 4), ("lfu", 1, 4), ("lru, prefetched", 2, 4)]


def test_what_cannot_be_replayed_is_refused():
    with pytest.raises(ValueError, match="unknown eviction policy 'fifo'"):
        compare_policies(make_trace(), SLOTS, ("fifo",))
    with pytest.raises(ValueError, match="no weights were tuned"):
        compare_policies(make_trace(), SLOTS, (TUNED,))
