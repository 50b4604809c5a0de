"""Slots that are filled while nobody waits: all of a layer's experts or none, taken back at once."""

from __future__ import annotations

import pytest

from offload.errors import ExpertReadError
from offload.geometry import Geometry, LayerGeometry
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import make_eviction
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
