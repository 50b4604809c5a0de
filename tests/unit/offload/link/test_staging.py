"""Prefill's own memory: the ring, and the two buffers of a full layer."""

from itertools import pairwise

import pytest

from offload.errors import ExpertReadError, OffloadError, WaitCancelled
from offload.geometry import Geometry, LayerGeometry, layer_staging_bytes
from offload.link.expert_link import DEMAND
from offload.link.staging import LayerStaging, StagingRing
from offload.page_memory import address_of


@pytest.fixture
def link(new_bench):
    return type(new_bench().link)()


def test_experts_stream_through_two_slots(link, pattern):
    ring = StagingRing(2, 64, link)
    ahead = ring.load(0, 0, 64)
    for expert in range(1, 6):
        current, ahead = ahead, ring.load(0, expert, 64)
        assert current.copy.priority == DEMAND
        current.copy.wait()
        assert bytes(ring.memory(current.slot)) == pattern(0, expert - 1)
        ring.free(current.slot)
    assert ring.num_free == 1
    assert ring.num_slots == 2


def test_a_full_ring_says_so(link):
    ring = StagingRing(2, 64, link)
    ring.load(0, 0, 64)
    ring.load(0, 1, 64)
    with pytest.raises(OffloadError, match="in use"):
        ring.load(0, 2, 64)


def test_a_queued_copy_given_up_never_runs(link):
    ring = StagingRing(2, 64, link)
    ring.load(0, 0, 64)
    ring.free_all()
    assert link.copies == []
    assert ring.num_free == 2


def test_a_slot_given_up_with_a_copy_on_the_link_is_not_reused_before_it_ends(link, pattern):
    ring = StagingRing(2, 64, link)
    leases = [ring.load(0, expert, 64) for expert in range(2)]
    for lease in leases:
        link.start(lease.copy)
    ring.free_all()
    assert ring.num_free == 2
    link.failing = {(0, 0)}
    again = ring.load(0, 7, 64)
    assert leases[0].copy.is_done, "it had to be waited for, and its failure is nobody's concern any more"
    again.copy.wait()
    assert bytes(ring.memory(again.slot)) == pattern(0, 7)


def test_a_failed_copy_leaves_a_usable_slot(link):
    ring = StagingRing(2, 64, link)
    link.failing = {(0, 0)}
    lease = ring.load(0, 0, 64)
    with pytest.raises(ExpertReadError):
        lease.copy.wait()
    ring.free_all()
    link.failing = set()
    for _ in range(2):
        ring.load(0, 0, 64).copy.wait()


def test_what_does_not_fit_is_refused(link):
    with pytest.raises(ValueError, match="cannot overlap"):
        StagingRing(1, 64, link)
    with pytest.raises(ValueError, match="65 bytes do not fit"):
        StagingRing(2, 64, link).load(0, 0, 65)


def test_a_smaller_expert_may_share_the_ring(link, pattern):
    ring = StagingRing(2, 64, link)
    lease = ring.load(1, 3, 32)
    lease.copy.wait()
    assert bytes(ring.memory(lease.slot)[:32]) == pattern(1, 3, 32)
    assert ring.total_bytes == 3 * 4096


GEOMETRY = Geometry((LayerGeometry(0, 4, 2, 64), LayerGeometry(1, 3, 2, 6000), LayerGeometry(2, 4, 2, 64)))


@pytest.fixture
def staging(link):
    return LayerStaging(GEOMETRY, link)


def test_two_layers_alternate_and_the_released_buffer_loads_the_one_after_next(link, staging, pattern):
    staging.begin(0)
    staging.begin(1)
    assert [(copy.layer, copy.expert) for copy in link.copies] == [(0, e) for e in range(4)] + [
        (1, e) for e in range(3)
    ]
    assert {copy.priority for copy in link.copies} == {DEMAND}
    for layer, num_experts in ((0, 4), (1, 3), (2, 4)):
        for expert in range(num_experts):
            staging.wait_expert(layer, expert)
            content = bytes(staging.memory(layer, expert))
            assert content == pattern(layer, expert, GEOMETRY.layers[layer].expert_bytes)
        staging.release(layer)
        assert len(staging.take_landed()) == num_experts
        if layer == 0:
            staging.begin(2)
            assert staging.staged_layers == (2, 1)
            assert (staging.buffer_of(2), staging.buffer_of(1)) == (0, 1)
    assert staging.take_landed() == []
    assert staging.staged_layers == ()


def test_buffers_are_apart_from_each_other_and_as_big_as_planned(link, staging):
    assert staging.total_bytes == layer_staging_bytes(GEOMETRY) == (2 * 3 * 2 + 1) * 4096
    staging.begin(0)
    staging.begin(1)
    slots = [staging.memory(layer, e) for layer in (0, 1) for e in range(GEOMETRY.layers[layer].num_experts)]
    places = sorted((address_of(slot), len(slot)) for slot in slots)
    assert all(start + size <= after for (start, size), (after, _) in pairwise(places))
    assert all(start % 4096 == 0 for start, _ in places)


def test_a_third_layer_has_to_wait_for_a_release(staging):
    staging.begin(0)
    with pytest.raises(ValueError, match="staged already"):
        staging.begin(0)
    staging.begin(1)
    with pytest.raises(OffloadError, match="in use"):
        staging.begin(2)
    with pytest.raises(KeyError, match="layer 2 is not staged"):
        staging.memory(2, 0)


def test_a_caller_may_ask_for_some_and_for_more_later(link, staging):
    staging.begin(0, [3, 1])
    staging.load(0, [1, 2])
    assert [copy.expert for copy in link.copies] == [3, 1, 2]
    with pytest.raises(KeyError):
        staging.wait_expert(0, 0)
    staging.wait_expert(0, 2)
    staging.release(0)
    assert len(staging.take_landed()) == 1, "the others were still queued, and are not loaded any more"
    assert link.copies == []


def test_what_nobody_routed_to_is_taken_back(link, staging):
    staging.begin(0)
    link.start(link.copies[1])
    staging.keep_only(0, {2, 3})
    assert [copy.expert for copy in link.copies] == [1, 2, 3], "1 had started"
    staging.load(0, [0])
    staging.wait_expert(0, 0)


def test_a_buffer_given_up_with_a_copy_on_the_link_is_not_reused_before_it_ends(link, staging, pattern):
    staging.begin(0)
    staging.begin(1)
    on_the_link = link.copies[0]
    link.start(on_the_link)
    link.failing = {(0, 0)}
    staging.release_all()
    assert link.copies == [on_the_link]
    staging.begin(2)
    assert on_the_link.is_done
    for expert in range(4):
        staging.wait_expert(2, expert)
        assert bytes(staging.memory(2, expert)) == pattern(2, expert)


@pytest.mark.parametrize("has_landed", [True, False])
def test_a_copy_given_up_on_the_link_counts_once_it_has_moved(link, staging, has_landed):
    ring = StagingRing(2, 64, link)
    given_up = [ring.load(2, 0, 64).copy]
    staging.begin(0, [0])
    given_up.append(link.copies[-1])
    for copy in given_up:
        link.start(copy)
    ring.free_all()
    staging.release_all()
    assert ring.take_landed() == staging.take_landed() == [], "nobody knows yet whether they will"
    link.failing = set() if has_landed else {(0, 0), (2, 0)}
    link.finish_all()
    assert [*ring.take_landed(), *staging.take_landed()] == (given_up if has_landed else [])
    assert ring.take_landed() == staging.take_landed() == []


def test_waiting_for_a_copy_given_up_can_be_stopped(new_link, new_source, pattern):
    source = new_source(is_open=False)
    staging = LayerStaging(GEOMETRY, new_link(source, num_threads=2))
    ring = StagingRing(2, 64, new_link(source, num_threads=2))
    staging.begin(0, [0])
    for expert in range(2):
        ring.load(2, expert, 64)
    source.wait_started(3)
    staging.release_all()
    ring.free_all()
    for wait in (lambda: staging.begin(1, None, lambda: True), lambda: ring.load(1, 0, 64, lambda: True)):
        with pytest.raises(WaitCancelled):
            wait()
    source.open()
    staging.begin(2)
    staging.wait_expert(2, 3)
    assert bytes(staging.memory(2, 3)) == pattern(2, 3)
    ring.load(0, 1, 64).copy.wait()


def test_a_failure_is_raised_where_it_is_waited_for_and_leaves_a_usable_buffer(link, staging):
    link.failing = {(0, 1)}
    staging.begin(0)
    staging.wait_expert(0, 0)
    with pytest.raises(ExpertReadError):
        staging.wait_expert(0, 1)
    staging.release(0)
    assert len(staging.take_landed()) == 1
    link.failing = set()
    staging.begin(0)
    staging.wait_expert(0, 1)


def test_a_wait_can_be_given_up(new_link, new_source):
    source = new_source(is_open=False)
    staging = LayerStaging(GEOMETRY, new_link(source))
    staging.begin(0)
    with pytest.raises(WaitCancelled):
        staging.wait_expert(0, 0, lambda: True)
    staging.release_all()
    source.open()
    staging.begin(2)
    assert staging.wait_expert(2, 3) >= 0
    staging.release(2)
