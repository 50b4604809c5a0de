"""Replay: by hand, and against the real cache, count for count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.replay.replay import PrefetchModel, replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

NUM_LAYERS, NUM_EXPERTS, TOP_K = 2, 8, 2
GEOMETRY = Geometry(tuple(LayerGeometry(i, NUM_EXPERTS, TOP_K, 64) for i in range(NUM_LAYERS)))


def make_trace(steps, predicted=None, seed=0, geometry=GEOMETRY, is_prefill=None) -> RoutingTrace:
    """`steps[t][layer]`: experts."""
    ids = np.full((len(steps), geometry.num_layers, max(at.top_k for at in geometry.layers)), NO_EXPERT, np.uint16)
    guesses = ids.copy()
    for t, step in enumerate(steps):
        for layer, experts in enumerate(step):
            ids[t, layer, : len(experts)] = experts
            if predicted is not None:
                guesses[t, layer, : len(predicted[t][layer])] = predicted[t][layer]
    shape = (*ids.shape[:2], max(at.num_experts for at in geometry.layers))
    scores = np.random.default_rng(seed).normal(size=shape).astype(np.float16)
    flags = np.zeros(len(steps), bool) if is_prefill is None else np.array(is_prefill)
    return RoutingTrace("m", "", geometry, ids, guesses, scores, flags, np.zeros(1, np.int64))


chosen = st.lists(st.integers(0, NUM_EXPERTS - 1), min_size=0, max_size=TOP_K, unique=True)
token = st.tuples(*[chosen] * NUM_LAYERS)
traces = st.lists(token, min_size=1, max_size=40)


def test_by_hand():
    one_layer = Geometry(GEOMETRY.layers[:1])
    steps = [[[0, 1]], [[0, 2]], [[1, 2]], [[3, 0]], [[3, 1]]]
    result = replay(make_trace(steps, geometry=one_layer), make_eviction("lru", one_layer), [3], initial=[[1, 5]])
    (counters,) = result.layers
    assert counters.cold_misses == 3, "0, 2, 3"
    assert counters.capacity_misses == 1, "1, which left for 3"
    assert counters.resident_hits == 6
    assert counters.loads == result.loads == 4
    assert counters.bytes_loaded == 4 * 64
    assert counters.evictions == 3, "5 for 2; 1 for 3 (0 is of the same step, and locked); 2 for 1"


def test_prompts_are_passed_over():
    steps = [[[5, 6], [5, 6]], [[0, 1], [0, 1]]]
    result = replay(make_trace(steps, is_prefill=[True, False]), make_eviction("lru", GEOMETRY), [2, 2])
    assert result.total.routed == 4
    assert result.total.evictions == 0


@pytest.mark.parametrize("slots", [[1, 3], [3, 1]])
def test_too_few_slots_for_a_step_are_refused(slots):
    with pytest.raises(ValueError, match="has 1 slots, for steps of 2"):
        replay(make_trace([[[0], [0]]]), make_eviction("lru", GEOMETRY), slots)


def test_what_does_not_fit_at_the_start_is_refused():
    trace = make_trace([[[0], [0]]])
    with pytest.raises(ValueError, match="4 initial"):
        replay(trace, make_eviction("lru", GEOMETRY), [3, 3], initial=[[], [0, 1, 2, 3]])
    with pytest.raises(ValueError, match="2 layers"):
        replay(trace, make_eviction("lru", GEOMETRY), [3, 3], initial=[[]])
    with pytest.raises(ValueError, match="2 layers"):
        replay(trace, make_eviction("lru", GEOMETRY), [3], group_of_layer=[0])


def drive(bench, trace, initial, prefetch=None):
    """The real cache on the same routing, every copy landing where the model of the link says so."""
    for layer, experts in enumerate(initial):
        bench.fill(layer, experts)
    before = [bench.cache.counters(layer) for layer in range(NUM_LAYERS)]
    num_misses = [0] * NUM_LAYERS
    for step in range(trace.num_steps):
        for layer in range(NUM_LAYERS):
            experts = trace.experts_by_step(layer)[step]
            leases = bench.cache.acquire(layer, experts, lambda at=(step, layer): trace.scores[at])
            demanded = [lease.copy for lease in leases if lease.copy is not None]
            num_missing = bench.cache.counters(layer).misses - num_misses[layer]
            num_misses[layer] += num_missing
            prefetched = []
            if prefetch is not None and layer + 1 < NUM_LAYERS:
                guess = trace.predicted_by_step(layer + 1)[step]
                absent = [expert for expert in guess if bench.cache.is_absent(layer + 1, expert)]
                bench.cache.prefetch(layer + 1, absent[: prefetch.depth])
                prefetched = [copy for copy in bench.link.copies if copy.layer == layer + 1]
            for copy in demanded:
                copy.wait()
            for copy in prefetched[: max(0, prefetch.hidden_copies - num_missing)] if prefetch else ():
                copy.wait()
            bench.cache.release(layer)
            bench.cache.check_integrity()
    return tuple(bench.cache.counters(layer) - before[layer] for layer in range(NUM_LAYERS))


@pytest.mark.parametrize("name", ["lru", "lfu", "history"])
@pytest.mark.parametrize("shared", [False, True])
@settings(max_examples=60, deadline=None)
@given(steps=traces, slots=st.integers(TOP_K, 5), seed=st.integers(0, 99), num_initial=st.integers(0, 2))
def test_a_replay_counts_what_the_cache_counts(new_bench, name, shared, steps, slots, seed, num_initial):
    trace = make_trace(steps, seed=seed)
    initial = [[3, 4][:num_initial], [5, 0][:num_initial]]
    bench = new_bench(NUM_LAYERS, NUM_EXPERTS, TOP_K, slots, name, shared)
    groups = {"slots": [slots] * NUM_LAYERS}
    if shared:
        groups = {"slots": [slots * NUM_LAYERS], "group_of_layer": [0] * NUM_LAYERS}
    result = replay(trace, make_eviction(name, GEOMETRY), initial=initial, **groups)
    assert result.layers == drive(bench, trace, initial)


@pytest.mark.parametrize("name", ["lru", "history"])
@pytest.mark.parametrize("shared", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(token, token), min_size=1, max_size=30),
    slots=st.integers(TOP_K, 5),
    depth=st.integers(0, 3),
    hidden=st.integers(0, 4),
)
def test_so_does_one_with_prefetch(new_bench, name, shared, pairs, slots, depth, hidden):
    trace = make_trace([routed for routed, _ in pairs], [guess for _, guess in pairs])
    bench = new_bench(NUM_LAYERS, NUM_EXPERTS, TOP_K, slots, name, shared)
    groups = {"slots": [slots] * NUM_LAYERS}
    if shared:
        groups = {"slots": [slots * NUM_LAYERS], "group_of_layer": [0] * NUM_LAYERS}
    model = PrefetchModel(depth, hidden)
    result = replay(trace, make_eviction(name, GEOMETRY), prefetch=model, **groups)
    assert result.layers == drive(bench, trace, [[], []], model)
    total = result.total
    judged = total.prefetch_useful + total.prefetch_late + total.prefetch_wasted + total.prefetch_cancelled
    assert total.routed == total.hits + total.late + total.misses
    assert 0 <= total.prefetch_issued - judged <= NUM_LAYERS * NUM_EXPERTS
