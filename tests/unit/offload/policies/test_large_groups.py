"""Eviction over a pool of thousands of slots: the same victims as a plain search finds, without the search."""

import random
import time

import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import EVICTION_POLICIES, HISTORY_POLICIES, make_eviction
from offload.policies.eviction.history import HistoryEviction

WIDE = Geometry(tuple(LayerGeometry(i, 128, 8, 64) for i in range(48)))
NUM_SLOTS = 3072
MAX_VICTIM_S = 1.4e-3
"""What a search of all slots took."""


def filled(name, chance):
    """A policy with so many residents in one group, and routing behind it."""
    policy = make_eviction(name, WIDE)
    names = [(layer, expert) for layer in range(48) for expert in range(128)]
    residents = set(chance.sample(names, NUM_SLOTS))
    for resident in residents:
        policy.enter(0, *resident)
    for _ in range(20):
        for layer in range(48):
            policy.observe(layer, chance.sample(range(128), 8))
    return policy, residents


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_victims_of_a_pool_take_far_less_than_a_search(name):
    chance = random.Random(name)
    policy, residents = filled(name, chance)
    times = []
    for step in range(96):
        layer = step % 48
        experts = chance.sample(range(128), 8)
        policy.observe(layer, experts)
        began = time.thread_time()
        victims = policy.victims(0, 4, {(layer, expert) for expert in experts}, None, layer)
        times.append(time.thread_time() - began)
        assert len(victims) == 4
        for victim in victims:
            residents.remove(victim)
            policy.leave(0, *victim)
        for expert in [expert for expert in experts if (layer, expert) not in residents][:4]:
            residents.add((layer, expert))
            policy.enter(0, layer, expert)
        while len(residents) < NUM_SLOTS:
            name_in = (chance.randrange(48), chance.randrange(128))
            if name_in not in residents:
                residents.add(name_in)
                policy.enter(0, *name_in)
    assert sorted(times)[len(times) // 2] < MAX_VICTIM_S / 4, f"{sorted(times)[len(times) // 2] * 1e6:.0f} us"


def rank_of(policy, name, layer, expert):
    if name == "history":
        assert isinstance(policy, HistoryEviction)
        return policy._worth(layer, [expert], None)[0]
    return policy.rank(layer, expert)


@pytest.mark.parametrize("name", HISTORY_POLICIES)
def test_the_order_kept_is_the_one_a_search_would_find(name):
    chance = random.Random(7)
    geometry = Geometry(tuple(LayerGeometry(i, 12, 3, 64) for i in range(3)))
    policy, residents = make_eviction(name, geometry), set()
    for step in range(400):
        layer = step % 3
        experts = chance.sample(range(12), 3)
        policy.observe(layer, experts)
        held = {(layer, expert) for expert in experts}
        num = chance.randint(1, 5)
        free = [each for each in residents if each not in held]
        expected = sorted(free, key=lambda each: (rank_of(policy, name, *each), each))[:num]
        found = policy.victims(0, num, held, None, layer)
        assert found == expected
        for victim in found if len(residents) > 14 else ():
            residents.remove(victim)
            policy.leave(0, *victim)
        for expert in experts:
            if (layer, expert) not in residents:
                residents.add((layer, expert))
                policy.enter(0, layer, expert)


def test_a_gate_drops_what_it_did_not_pick():
    policy = make_eviction("not-picked", WIDE)
    for name in [(3, 1), (3, 2), (4, 9), (2, 5)]:
        policy.enter(0, *name)
    policy.observe(3, [2])
    assert policy.unwanted(0, 3, [2]) == [(3, 1)]
    assert policy.victims(0, 3, {(3, 2)}, None, 4) == [(3, 1), (2, 5), (4, 9)], "the next layer's goes last"
    nothing = make_eviction("keep-none", WIDE)
    for name in [(3, 1), (3, 2), (2, 5)]:
        nothing.enter(0, *name)
    nothing.observe(3, [2])
    assert set(nothing.unwanted(0, 3, [2])) == {(3, 1), (2, 5)}
