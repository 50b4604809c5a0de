"""Weights found by replay."""

import numpy as np
import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryEviction, HistoryWeights
from offload.replay.belady import belady_pool_loads
from offload.replay.replay import replay
from offload.replay.trace import RoutingTrace
from offload.replay.tuning import tune_history

GEOMETRY = Geometry(tuple(LayerGeometry(i, 8, 2, 64) for i in range(3)))
SLOTS = (4, 3, 4)


def make_trace(seed, num_steps=150) -> RoutingTrace:
    """Some experts are always liked, and the scores of the last step say something about the next."""
    random = np.random.default_rng(seed)
    liked = random.normal(size=(3, 8))
    mood = np.zeros((3, 8))
    scores = np.zeros((num_steps, 3, 8))
    for step in range(num_steps):
        mood = 0.8 * mood + random.normal(size=mood.shape)
        scores[step] = liked + mood
    ids = np.argsort(-scores, axis=2)[:, :, :2].astype(np.uint16)
    empty = np.full_like(ids, 0xFFFF)
    flags = np.arange(num_steps) < 20
    return RoutingTrace("m", "", GEOMETRY, ids, empty, scores.astype(np.float16), flags, np.zeros(1, np.int64))


@pytest.fixture(scope="module")
def traces():
    return [make_trace(0), make_trace(1)]


@pytest.fixture(scope="module")
def result(traces):
    return tune_history(traces, SLOTS, num_random=40, num_rounds=2)


def test_what_it_reports_is_what_replays_find(traces, result):
    def loads(make):
        return sum(replay(trace, make(), SLOTS).loads for trace in traces)

    assert result.loads == loads(lambda: HistoryEviction(GEOMETRY, result.best))
    assert result.default_loads == loads(lambda: make_eviction("history", GEOMETRY))
    assert result.lru_loads == loads(lambda: make_eviction("lru", GEOMETRY))
    assert result.lfu_loads == loads(lambda: make_eviction("lfu", GEOMETRY))
    assert result.belady_pool_loads == sum(belady_pool_loads(trace, SLOTS) for trace in traces)


def test_it_finds_something_better(result):
    assert result.loads < result.default_loads
    assert result.loads < result.lru_loads
    assert result.belady_pool_loads <= result.belady_layer_loads <= result.loads
    assert min(trial.loads for trial in result.trials) == result.loads
    assert len({trial.weights for trial in result.trials}) == len(result.trials)


def test_the_same_seed_finds_the_same(traces, result):
    assert tune_history(traces, SLOTS, num_random=40, num_rounds=2) == result
    other = tune_history(traces, SLOTS, num_random=40, num_rounds=0, seed=1)
    assert other.trials[1:] != result.trials[1 : len(other.trials)]


def test_initial_contents_count(traces):
    start = [[0, 1, 2], [3, 4], [5]]
    result = tune_history(traces, SLOTS, initial=start, num_random=0, num_rounds=0)
    expected = sum(replay(t, make_eviction("history", GEOMETRY), SLOTS, initial=start).loads for t in traces)
    assert result.loads == result.default_loads == expected
    assert result.best == HistoryWeights()


def test_progress_is_told_and_can_stop_it(traces):
    told = []

    def stop(done, total):
        told.append((done, total))
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_history(traces, SLOTS, num_random=40, num_rounds=1, on_progress=stop)
    assert told[0][0] == 0
    assert 0 < told[1][0] <= told[1][1]


def test_nothing_to_tune_on():
    with pytest.raises(ValueError, match="no traces"):
        tune_history([], SLOTS)
