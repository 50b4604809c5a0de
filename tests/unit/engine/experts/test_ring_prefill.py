"""The ring of prefill: in order, several reads at once, and into the next layer."""

from __future__ import annotations

import pytest

from engine.experts.prefill import RingPrefill
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
    """Two layers with `slots` decode slots each, which are full unless `is_cold`."""

    def __init__(self, slots: int, is_cold: bool = False) -> None:
        layers = tuple(LayerGeometry(number, NUM_EXPERTS, TOP_K, BYTES) for number in range(2))
        geometry, self.source = Geometry(layers), Source()
        self.link = Link(self.source, 1)
        pool = SlotPool((slots, slots), (BYTES, BYTES))
        self.cache = ExpertCache(geometry, pool, self.link, make_eviction("history", geometry))
        self.pool, self.ring = pool, StagingRing(RING, BYTES, self.link)
        self.prefill = RingPrefill(self.cache, self.ring, geometry, lambda: False)
        if not is_cold:
            for layer in range(2):
                for copy in self.cache.warm(layer, list(range(NUM_EXPERTS - slots, NUM_EXPERTS))):
                    copy.wait()
                self.cache.settle(layer)
        self.source.read.clear()

    def fetch(self, layer: int, experts: list[int], num_tok: int) -> list[int]:
        """Runs a layer's prefill to its end and checks every expert's bytes."""
        found = []
        for fetched in self.prefill.fetch(layer, experts, num_tok):
            held = fetched.staged if fetched.staged is not None else self.pool.memory(fetched.slot or 0)
            assert held.tolist() == [16 * layer + fetched.expert] * BYTES
            found.append(fetched.expert)
        self.cache.release(layer)
        self.cache.check_integrity()
        return found


def test_a_long_prompt_reads_on_into_the_next_layer_and_a_short_one_does_not() -> None:
    for num_tok, ahead in ((100, [0, 1, 2, 3]), (4, [])):
        bench = Bench(slots=3)
        assert bench.fetch(0, list(range(9)), num_tok) == list(range(9))
        while bench.link.queued:
            pass
        assert bench.source.read[:9] == [(0, expert) for expert in range(9)]
        assert bench.fetch(1, [1, 3, 4, 8], num_tok) == [1, 3, 4, 8], "0 and 2 got no token"
        assert [e for layer, e in bench.source.read if layer == 1] == sorted({*ahead, 1, 3, 4, 8})
        assert bench.ring.num_free == RING
        assert bench.cache.residents() == ((9, 10, 11), (9, 10, 11)), "prefill evicts nothing"
        bench.link.close()


@pytest.mark.parametrize("slots", [3, NUM_EXPERTS])
def test_empty_decode_slots_are_filled_ahead_and_stay_filled(slots: int) -> None:
    bench = Bench(slots, is_cold=True)
    everyone = list(range(NUM_EXPERTS))
    assert bench.fetch(0, everyone, 100) == everyone
    bench.cache.settle(1)
    ahead = [expert for expert in everyone if not bench.cache.is_absent(1, expert)]
    assert ahead == everyone[: min(slots, RING)]
    left = [expert for expert in everyone if not bench.cache.is_resident(1, expert)]
    assert bench.fetch(1, left, 100) == left
    assert sum(map(len, bench.cache.residents())) == 2 * slots
    assert bench.ring.num_free == RING
    bench.link.close()


def test_a_prompt_given_up_leaves_nothing_locked_or_staged() -> None:
    bench = Bench(slots=3, is_cold=True)
    arriving = bench.prefill.fetch(0, list(range(NUM_EXPERTS)), 100)
    for _ in range(NUM_EXPERTS - 1):
        next(arriving)
    bench.prefill.abandon()
    bench.cache.release(0)
    assert bench.ring.num_free == RING
    assert bench.fetch(1, list(range(8)), 100) == list(range(8))
    bench.link.close()
