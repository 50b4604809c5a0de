"""Slots that are filled while nobody waits: all of a layer's experts or none, taken back at once."""

from __future__ import annotations

import pytest

from offload.errors import ExpertReadError
from offload.geometry import Geometry, LayerGeometry
from offload.link.expert_link import DEMAND
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import make_eviction
from offload.residency.background_filling import BackgroundFilling
from offload.residency.cache import ExpertCache
from offload.residency.warming import fill_layers
from tests.unit.offload.conftest import EXPERT_BYTES, GatedSource

NUM_EXPERTS = 6


def make_cache(source: GatedSource, slots: tuple[int, ...], group_of_layer: list[int] | None = None) -> ExpertCache:
    num_layers = len(group_of_layer or slots)
    geometry = Geometry(tuple(LayerGeometry(number, NUM_EXPERTS, 2, EXPERT_BYTES) for number in range(num_layers)))
    pool = SlotPool(slots, (EXPERT_BYTES,) * len(slots))
    return ExpertCache(geometry, pool, Link(source, 1), make_eviction("history", geometry), group_of_layer)


@pytest.mark.parametrize(
    ("slots", "groups", "filled"),
    [((6, 5, 6), None, [6, 0, 6]), ((12,), [0, 0], [6, 6]), ((11,), [0, 0], [0, 0])],
)
def test_layers_with_a_slot_for_every_expert_are_filled(
    slots: tuple[int, ...], groups: list[int] | None, filled: list[int]
) -> None:
    cache = make_cache(GatedSource(), slots, groups)
    landed: list[int] = []
    assert fill_layers(cache, lambda: False, lambda: landed.append(1)) == sum(filled) == len(landed)
    assert [len(experts) for experts in cache.residents()] == filled
    counters = cache.total_counters()
    assert (counters.prefill_loads, counters.bytes_loaded) == (sum(filled), sum(filled) * EXPERT_BYTES)
    assert (counters.evictions, counters.prefetch_issued, counters.routed) == (0, 0, 0)
    assert fill_layers(cache, lambda: False) == 0
    cache.check_integrity()


def test_what_has_not_begun_is_taken_back_at_once() -> None:
    source = GatedSource(is_open=False)
    cache = make_cache(source, (NUM_EXPERTS, NUM_EXPERTS))
    source.let(0, 0)
    num_landed = fill_layers(cache, lambda: len(source.started) == 2)
    assert num_landed == 1
    assert cache.num_loading(0) == 1, "it is on the link"
    assert cache.num_empty_slots(0) == NUM_EXPERTS - 2
    source.open()
    assert fill_layers(cache, lambda: False) == 2 * NUM_EXPERTS - 2
    cache.settle(0)
    assert [len(experts) for experts in cache.residents()] == [NUM_EXPERTS] * 2
    cache.check_integrity()


def test_a_read_that_fails_leaves_the_rest_as_it_is() -> None:
    source = GatedSource()
    source.failing.add((0, 2))
    cache = make_cache(source, (NUM_EXPERTS,))
    with pytest.raises(ExpertReadError):
        fill_layers(cache, lambda: False)
    cache.check_integrity()
    assert 2 not in cache.residents()[0]


def step(cache: ExpertCache, layer: int, experts: list[int]) -> None:
    for lease in cache.acquire(layer, experts):
        if lease.copy is not None:
            lease.copy.wait()
    cache.release(layer)


def land_all(cache: ExpertCache) -> None:
    for layer in range(len(cache.slots_per_layer)):
        while cache.num_loading(layer):
            cache.settle(layer)


@pytest.mark.parametrize(("slots", "filled"), [((6, 5, 6), [2, 2, 2]), ((6, 6), [6, 6])])
def test_slots_are_filled_beside_decode(slots: tuple[int, ...], filled: list[int]) -> None:
    cache = make_cache(GatedSource(), slots)
    filling = BackgroundFilling(cache)
    for layer in (*range(len(slots)), *range(len(slots))):
        step(cache, layer, [0, 3])
        filling.layer_ended(layer)
    land_all(cache)
    assert [len(experts) for experts in cache.residents()] == filled
    counters = cache.total_counters()
    assert counters.routed == counters.hits + counters.late + counters.misses
    assert (counters.evictions, counters.prefetch_issued, counters.prefetched_hits) == (0, 0, 0)
    assert counters.demand_loads + counters.prefill_loads == sum(filled)
    cache.check_integrity()


def test_what_is_asked_for_goes_first() -> None:
    source = GatedSource(is_open=False)
    cache = make_cache(source, (NUM_EXPERTS,))
    BackgroundFilling(cache).layer_ended(0)
    source.wait_started(1)
    (late, other) = cache.acquire(0, [5, 1])
    assert late.copy is not None
    assert other.copy is not None
    assert late.copy.priority == other.copy.priority == DEMAND, "queued to be filled, and waited for now"
    source.open()
    late.copy.wait()
    cache.release(0)
    assert source.started.index((0, 5)) == 1, "behind what had begun"
    land_all(cache)
    counters = cache.counters(0)
    assert (counters.late, counters.prefetch_late, counters.cold_misses) == (2, 0, 0)
    assert len(cache.residents()[0]) == NUM_EXPERTS
    cache.check_integrity()


def test_an_expert_that_cannot_be_read_is_tried_once() -> None:
    source = GatedSource()
    source.failing.add((0, 2))
    cache = make_cache(source, (NUM_EXPERTS,))
    filling = BackgroundFilling(cache)
    for _ in range(3):
        filling.layer_ended(0)
        land_all(cache)
    assert cache.absent(0) == [2]
    assert source.started.count((0, 2)) == 1
    cache.check_integrity()


def test_at_the_end_what_has_not_begun_is_taken_back() -> None:
    source = GatedSource(is_open=False)
    cache = make_cache(source, (NUM_EXPERTS, NUM_EXPERTS))
    filling = BackgroundFilling(cache)
    for layer in (0, 1):
        filling.layer_ended(layer)
    source.wait_started(1)
    filling.end()
    assert [cache.num_loading(layer) for layer in (0, 1)] == [1, 0]
    source.open()
    assert fill_layers(cache, lambda: False) == 2 * NUM_EXPERTS - 1
    cache.check_integrity()
