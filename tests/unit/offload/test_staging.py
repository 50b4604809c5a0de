"""Prefill's staging ring."""

import pytest

from offload.errors import ExpertReadError, OffloadError
from offload.link import PREFILL
from offload.staging import StagingRing


@pytest.fixture
def link(new_bench):
    return type(new_bench().link)()


def test_experts_stream_through_two_slots(link, pattern):
    ring = StagingRing(2, 64, link)
    ahead = ring.load(0, 0, 64)
    for expert in range(1, 6):
        current, ahead = ahead, ring.load(0, expert, 64)
        assert current.copy.priority == PREFILL
        current.copy.wait()
        assert bytes(ring.tensor(current.slot).numpy()) == pattern(0, expert - 1)
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
    assert bytes(ring.tensor(again.slot).numpy()) == pattern(0, 7)


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
    assert bytes(ring.tensor(lease.slot)[:32].numpy()) == pattern(1, 3, 32)
    assert ring.total_bytes == 3 * 4096
