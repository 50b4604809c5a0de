"""Replay makes the loads of a straightforward cache that ranks every resident expert anew for every victim."""

import random

import numpy as np
import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryWeights, scale_scores
from offload.replay.replay import replay
from offload.replay.trace import RoutingTrace

NUM_LAYERS, NUM_EXPERTS, TOP_K, NUM_STEPS = 2, 12, 4, 150
GEOMETRY = Geometry(tuple(LayerGeometry(i, NUM_EXPERTS, TOP_K, 64) for i in range(NUM_LAYERS)))


def random_trace(seed: int) -> RoutingTrace:
    """Routing with favourites that change now and then."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    ids = np.empty((NUM_STEPS, NUM_LAYERS, TOP_K), np.uint16)
    for step in range(NUM_STEPS):
        for layer in range(NUM_LAYERS):
            favourites = [(step // 40 + layer + i) % NUM_EXPERTS for i in range(6)]
            pool = favourites if chance.random() < 0.8 else range(NUM_EXPERTS)
            ids[step, layer] = chance.sample(list(pool), TOP_K)
    scores = rng.normal(size=(NUM_STEPS, NUM_LAYERS, NUM_EXPERTS)).astype(np.float16)
    flags = np.zeros(NUM_STEPS, bool)
    return RoutingTrace("m", "", GEOMETRY, ids, ids.copy(), scores, flags, np.zeros(1, np.int64))


def keep_value(name, expert, layer, past, order, scores):
    """What an expert is worth keeping, from the whole past routing of its layer: the definitions, word for word."""
    steps = past[layer]
    count = sum(expert in step for step in steps)
    last_anywhere = max((at for at, (of, step) in enumerate(order, 1) if of == layer and expert in step), default=0)
    if name == "lru":
        return (last_anywhere,)
    if name == "lfu":
        return (count, last_anywhere)
    weights = HistoryWeights()

    def counted(e):
        return sum(e in step for step in steps[-weights.window_steps :])

    def average(e):
        return sum(weights.ema_decay ** (len(steps) - at) for at, step in enumerate(steps, 1) if e in step)

    def age(e):
        return len(steps) - max((at for at, step in enumerate(steps, 1) if e in step), default=0)

    everyone = range(NUM_EXPERTS)
    value = weights.count * counted(expert) / (max(map(counted, everyone)) or 1)
    value += weights.ema * average(expert) / (max(map(average, everyone)) or 1)
    value -= weights.recency * age(expert) / (max(map(age, everyone)) or 1)
    if scores is not None:
        value += weights.score * float(scale_scores(scores)[expert])
    return (round(value, 9),)


def reference_loads(trace, name, slots, is_shared):
    """Loads per layer, one victim at a time."""
    past, order = [[] for _ in range(NUM_LAYERS)], []
    resident: list[tuple[int, int]] = []
    loads = [0] * NUM_LAYERS
    for step in range(trace.num_steps):
        for layer in range(NUM_LAYERS):
            experts = trace.experts_by_step(layer)[step]
            past[layer].append(experts)
            order.append((layer, experts))
            for expert in experts:
                if (layer, expert) in resident:
                    continue
                here = [pair for pair in resident if is_shared or pair[0] == layer]
                if len(here) == slots:
                    unlocked = [pair for pair in here if pair[0] != layer or pair[1] not in experts]
                    ranks = {
                        (at, other): keep_value(
                            name, other, at, past, order, trace.scores[step, layer] if at == layer else None
                        )
                        for at, other in unlocked
                    }
                    resident.remove(min(unlocked, key=lambda pair: (ranks[pair], pair)))
                resident.append((layer, expert))
                loads[layer] += 1
    return loads


@pytest.mark.parametrize("name", ["lru", "lfu", "history"])
@pytest.mark.parametrize(("slots", "is_shared"), [(4, False), (6, False), (13, True)])
def test_loads_are_those_of_a_straightforward_cache(name, slots, is_shared):
    trace = random_trace(slots)
    groups = {"slots": [slots] * NUM_LAYERS}
    if is_shared:
        groups = {"slots": [slots], "group_of_layer": [0] * NUM_LAYERS}
    result = replay(trace, make_eviction(name, GEOMETRY), **groups)
    assert [layer.loads for layer in result.layers] == reference_loads(trace, name, slots, is_shared)
