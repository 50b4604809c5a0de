"""Many history policies in one pass: each like a replay of its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryEviction, HistoryWeights
from offload.replay.history_sweep import LRU_WEIGHTS, Variant, sweep_loads
from offload.replay.replay import replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

GEOMETRY = Geometry((LayerGeometry(0, 8, 2, 64), LayerGeometry(1, 5, 1, 64), LayerGeometry(2, 7, 3, 64)))


def make_trace(seed, num_steps=60, has_scores=True) -> RoutingTrace:
    """Scores that drift, with some masked; the best of each layer are chosen, and now and then nobody."""
    random = np.random.default_rng(seed)
    scores = np.full((num_steps, 3, 8), np.nan, np.float16)
    ids = np.full((num_steps, 3, 3), NO_EXPERT, np.uint16)
    for layer, shape in enumerate(GEOMETRY.layers):
        drift = random.normal(size=(num_steps, shape.num_experts)).cumsum(axis=0) * 0.3
        drift += random.normal(size=drift.shape)
        order = np.argsort(-drift, axis=1, kind="stable")
        drift[random.random(drift.shape) < 0.02] = -np.inf
        scores[:, layer, : shape.num_experts] = drift
        ids[:, layer, : shape.top_k] = order[:, : shape.top_k]
    ids[random.random(num_steps) < 0.05] = NO_EXPERT
    empty = np.full_like(ids, NO_EXPERT)
    flags = random.random(num_steps) < 0.1
    return RoutingTrace("m", "", GEOMETRY, ids, empty, scores if has_scores else None, flags, np.zeros(1, np.int64))


weight = st.sampled_from([0.0, 0.3, 1.0, 2.5])
variants = st.builds(
    Variant,
    st.builds(
        HistoryWeights,
        count=weight,
        ema=weight,
        score=weight,
        recency=weight,
        window_steps=st.sampled_from([1, 4, 30, 500]),
        ema_decay=st.sampled_from([0.05, 0.5, 0.9]),
    ),
    st.tuples(st.integers(2, 8), st.integers(1, 5), st.integers(3, 7)),
    st.sampled_from([None, ([1], [4], [0, 6]), ([], [], [])]),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.lists(variants, min_size=1, max_size=5), st.booleans())
def test_each_variant_is_a_replay(seed, variants, has_scores):
    trace = make_trace(seed, has_scores=has_scores)
    loads = sweep_loads(trace, variants)
    for variant, found in zip(variants, loads, strict=True):
        policy = HistoryEviction(GEOMETRY, variant.weights)
        result = replay(trace, policy, variant.slots_per_layer, initial=variant.initial)
        assert found.tolist() == [counters.loads for counters in result.layers]


def test_recency_alone_is_lru_and_a_long_life_does_not_overflow():
    trace = make_trace(3, 4000)
    fast = HistoryWeights(ema_decay=0.2)
    loads = sweep_loads(trace, [Variant(LRU_WEIGHTS, (3, 2, 4)), Variant(fast, (3, 2, 4))])
    for name, found in (("lru", loads[0]), (None, loads[1])):
        policy = make_eviction(name, GEOMETRY) if name else HistoryEviction(GEOMETRY, fast)
        assert found.tolist() == [counters.loads for counters in replay(trace, policy, (3, 2, 4)).layers]


def test_too_few_slots_are_refused():
    with pytest.raises(ValueError, match="too few slots"):
        sweep_loads(make_trace(0), [Variant(LRU_WEIGHTS, (2, 1, 2))])
    with pytest.raises(ValueError, match="too few slots"):
        sweep_loads(make_trace(0), [Variant(LRU_WEIGHTS, (2, 1, 3), ([0, 1, 2], [], []))])
