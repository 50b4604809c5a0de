"""The ring of prefill: in order, several reads at once, and into the next layer."""

from __future__ import annotations

import random
from itertools import chain

import pytest

from engine.experts.ring_prefill import RingPrefill
from offload.geometry import Geometry, LayerGeometry
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.link.staging import StagingRing
from offload.policies.eviction import make_eviction
from offload.residency.cache import ExpertCache

NUM_EXPERTS, TOP_K, RING, BYTES = 12, 2, 4, 64


class Source:
    """Experts at once, each full of its number."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        self.read.append((layer, expert))
        destination[:] = bytes([16 * layer + expert]) * len(destination)
        return len(destination)


class Bench:
    """Three layers with `slots` decode slots each, which are full unless `is_cold`."""

    def __init__(self, slots: int, is_cold: bool = False) -> None:
        layers = tuple(LayerGeometry(number, NUM_EXPERTS, TOP_K, BYTES) for number in range(3))
        geometry, self.source = Geometry(layers), Source()
        self.link = Link(self.source, 1)
        pool = SlotPool((slots,) * 3, (BYTES,) * 3)
        self.cache = ExpertCache(geometry, pool, self.link, make_eviction("history", geometry))
        self.pool, self.ring = pool, StagingRing(RING, BYTES, self.link)
        self.prefill = RingPrefill(self.cache, self.ring, geometry, lambda: False)
        if not is_cold:
            for layer in range(3):
                for copy in self.cache.warm(layer, list(range(NUM_EXPERTS - slots, NUM_EXPERTS))):
                    copy.wait()
                self.cache.settle(layer)
        self.source.read.clear()

    def fetch(self, layer: int, experts: list[int], by_use: list[int] | None = None) -> list[int]:
        """Runs a layer's prefill to its end and checks every expert's bytes."""
        found = []
        for fetched in chain.from_iterable(self.prefill.fetch(layer, experts, by_use or experts, 100)):
            held = fetched.staged if fetched.staged is not None else self.pool.memory(fetched.slot or 0)
            assert held.tolist() == [16 * layer + fetched.expert] * BYTES
            found.append(fetched.expert)
        self.cache.release(layer)
        self.cache.check_integrity()
        return found


def test_where_nearly_all_experts_are_used_the_next_layers_are_read_ahead() -> None:
    for used, ahead in ([*range(8)], [0, 1, 2, 3]), ([*range(7)], []):
        bench = Bench(slots=3)
        assert bench.fetch(0, used) == used
        while bench.link.queued:
            pass
        assert bench.source.read[: len(used)] == [(0, expert) for expert in used]
        assert bench.fetch(1, [1, 3, 4, 8]) == [1, 3, 4, 8], "0 and 2 got no token"
        assert [e for layer, e in bench.source.read if layer == 1] == sorted({*ahead, 1, 3, 4, 8})
        assert bench.ring.num_free == RING
        assert bench.cache.residents() == ((9, 10, 11),) * 3, "prefill evicts nothing"
        while bench.link.queued:
            pass
        assert all(layer < 2 for layer, _ in bench.source.read), "the last layer is not read ahead"
        bench.link.close()


@pytest.mark.parametrize("slots", [3, NUM_EXPERTS])
def test_empty_decode_slots_are_filled_with_the_most_used(slots: int) -> None:
    bench = Bench(slots, is_cold=True)
    everyone = list(range(NUM_EXPERTS))
    by_use = [7, 1, 4, 0, 2, 3, 5, 6, 8, 9, 10, 11]
    assert bench.fetch(0, everyone, by_use) == everyone
    while bench.link.queued:
        pass
    ahead = [expert for layer, expert in bench.source.read if layer == 1]
    assert ahead == (everyone if slots == NUM_EXPERTS else []), "else it is not known yet which ones are to stay"
    bench.cache.settle(1)
    left = [expert for expert in everyone if not bench.cache.is_resident(1, expert)]
    assert bench.fetch(1, left, [expert for expert in by_use if expert in left]) == left
    assert bench.cache.residents()[:2] == (tuple(sorted(by_use[:slots])),) * 2
    assert bench.ring.num_free == RING
    bench.link.close()


def test_a_prompt_given_up_leaves_nothing_locked_or_staged() -> None:
    bench = Bench(slots=3, is_cold=True)
    arriving = bench.prefill.fetch(0, list(range(NUM_EXPERTS)), list(range(NUM_EXPERTS)), 100)
    found = 0
    while found < NUM_EXPERTS - 4:
        found += len(next(arriving))
    bench.prefill.abandon()
    bench.cache.release(0)
    assert bench.ring.num_free == RING
    assert bench.fetch(1, list(range(8))) == list(range(8))
    bench.link.close()


def test_where_all_experts_have_slots_the_next_absent_ones_are_on_their_way() -> None:
    bench, everyone = Bench(NUM_EXPERTS, is_cold=True), list(range(NUM_EXPERTS))
    arriving = bench.prefill.fetch(0, everyone, everyone, 100)
    next(arriving)
    assert (bench.cache.absent(1), bench.cache.absent(2)) == ([], everyone), "the last layer's wait"
    bench.prefill.abandon()
    bench.cache.release(0)
    while bench.link.queued:
        pass
    assert bench.fetch(0, bench.cache.absent(0)) == bench.cache.absent(0)
    bench.cache.check_integrity()
    bench.link.close()


def test_a_forecast_fills_empty_slots_early_with_the_most_used() -> None:
    bench, everyone = Bench(3, is_cold=True), list(range(NUM_EXPERTS))
    assert [bench.prefill.takes_forecast(layer) for layer in range(3)] == [False, True, False]
    bench.prefill.forecast(1, [7, 1, 4, 0, 2, 9])
    assert bench.fetch(0, everyone) == everyone
    while bench.link.queued:
        pass
    ahead = [expert for layer, expert in bench.source.read if layer == 1]
    assert {1, 4, 7} <= set(ahead) <= {0, 1, 2, 4, 7, 9}, "as far as the ring has room"
    assert ahead == sorted(ahead)
    assert not bench.prefill.takes_forecast(1)
    assert bench.fetch(1, [0, 1, 3, 4, 5, 11]) == [0, 1, 3, 4, 5, 11], "7 and 9 got no token, 3 was not expected"
    assert bench.cache.residents()[1] == (1, 4, 7)
    assert bench.ring.num_free == RING
    bench.link.close()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_forecast_every_expert_comes_in_order(seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(chance.choice([2, 5, NUM_EXPERTS]), is_cold=True)
    for _ in range(4):
        for layer in range(3):
            used = sorted(chance.sample(range(NUM_EXPERTS), chance.randint(1, NUM_EXPERTS)))
            if layer < 2:
                bench.prefill.forecast(layer + 1, chance.sample(range(NUM_EXPERTS), chance.randint(0, NUM_EXPERTS)))
            absent = [expert for expert in used if expert not in bench.cache.lock_resident(layer, used)]
            assert bench.fetch(layer, absent, chance.sample(absent, len(absent))) == absent
        assert bench.ring.num_free == RING
    bench.link.close()
