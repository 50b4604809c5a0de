"""The expert cache, step by step on a link that moves when told to."""

import numpy as np
import pytest

from offload.errors import ExpertReadError, WaitCancelled
from offload.link.expert_link import DEMAND, PREFETCH
from offload.policies.eviction import make_eviction
from offload.residency.cache import ExpertCache
from offload.residency.codes import HOST, IN_USE, LOADING, RESIDENT, SUBSTITUTE, marked
from offload.slot_groups import SlotGroups


def counted(bench, layer=0):
    """The counters that are not zero."""
    counters = bench.cache.counters(layer)
    return {name: value for name in counters.__slots__ if (value := getattr(counters, name))}


def residents(bench, layer=0):
    return {e for e in range(bench.geometry.layers[layer].num_experts) if bench.cache.is_resident(layer, e)}


# ---- hits and misses


def test_first_a_cold_miss_then_a_hit(new_bench, pattern):
    bench = new_bench()
    assert bench.step(0, [4, 2]) == [4, 2]
    assert bench.step(0, [4, 2]) == []
    assert counted(bench) == {
        "routed": 4, "cold_misses": 2, "resident_hits": 2, "demand_loads": 2, "bytes_loaded": 128,
    }  # fmt: skip
    for expert in (4, 2):
        assert bench.content(bench.cache.slot_of(0, expert)) == pattern(0, expert)


def test_leases_come_in_the_order_of_the_experts(new_bench, pattern):
    bench = new_bench(top_k=3, slots=4)
    bench.fill(0, [1, 6])
    leases = bench.cache.acquire(0, [6, 3, 1])
    bench.link.finish_all()
    assert [bench.content(lease.slot) for lease in leases] == [pattern(0, 6), pattern(0, 3), pattern(0, 1)]
    assert [lease.copy is None for lease in leases] == [True, False, True]


def test_back_after_an_eviction_is_a_capacity_miss(new_bench):
    bench = new_bench(slots=2)
    for experts in ([0, 1], [2, 3], [0, 1]):
        bench.step(0, experts)
    assert counted(bench) == {
        "routed": 6, "cold_misses": 4, "capacity_misses": 2, "demand_loads": 6, "bytes_loaded": 384, "evictions": 4,
    }  # fmt: skip


def test_the_experts_of_a_step_never_evict_each_other(new_bench):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1, 2])
    bench.step(0, [1, 2])
    assert bench.step(0, [0, 5]) == [5], "0 is the least recently used, and in this step"
    assert residents(bench) == {0, 2, 5}


def test_scores_are_drawn_once_and_only_for_a_miss(new_bench):
    bench = new_bench(eviction="history", slots=2)
    draws = []

    def scores():
        draws.append(1)
        return np.linspace(0, 1, 8)

    bench.step(0, [0, 1], scores=scores)
    bench.step(0, [0, 1], scores=scores)
    bench.step(0, [2, 3], scores=scores)
    assert len(draws) == 2


def test_the_router_score_decides_between_equals(new_bench):
    bench = new_bench(eviction="history", top_k=1, slots=2)
    bench.fill(0, [0, 1])
    bench.step(0, [5], scores=lambda: np.array([0.1, 0.9, 0, 0, 0, 0.5, 0, 0]))
    assert residents(bench) == {1, 5}


def test_layers_of_their_own_do_not_disturb_each_other(new_bench):
    bench = new_bench()
    bench.fill(0, [0, 1, 2])
    bench.step(1, [0, 1])
    bench.step(1, [2, 3])
    assert residents(bench) == {0, 1, 2}
    assert counted(bench, 0) == {"prefill_loads": 3, "bytes_loaded": 192}
    assert bench.cache.total_counters().routed == 4


def test_layers_in_one_group_compete_for_its_slots(new_bench, pattern):
    bench = new_bench(slots=2, shared=True)
    bench.step(0, [0, 1])
    bench.step(0, [2, 3])
    assert bench.step(1, [0, 1]) == [0, 1]
    assert residents(bench, 0) == {2, 3}, "0 and 1 of layer 0 were the least recently used of the group"
    assert bench.content(bench.cache.slot_of(1, 0)) == pattern(1, 0)
    assert counted(bench, 0)["evictions"] == 2
    assert bench.cache.slot_groups == SlotGroups.pool(4, 2)
    assert bench.cache.slots_per_layer == (2, 2), "shares: counted once"


# ---- prefetches: each way they can end


def test_useful(new_bench):
    bench = new_bench()
    assert bench.cache.prefetch(0, [5]) == 1
    bench.link.finish_all()
    assert bench.step(0, [5]) == []
    assert bench.step(0, [5]) == []
    assert counted(bench) == {
        "routed": 2, "prefetched_hits": 1, "resident_hits": 1,
        "prefetch_issued": 1, "prefetch_useful": 1, "prefetch_loads": 1, "bytes_loaded": 64,
    }  # fmt: skip


def test_late_while_queued_is_promoted(new_bench):
    bench = new_bench()
    bench.cache.prefetch(0, [5])
    (lease,) = bench.cache.acquire(0, [5])
    assert lease.copy.priority == DEMAND
    lease.copy.wait()
    bench.cache.release(0)
    assert counted(bench) == {
        "routed": 1, "late": 1, "prefetch_issued": 1, "prefetch_late": 1, "demand_loads": 1, "bytes_loaded": 64,
    }  # fmt: skip
    assert bench.step(0, [5]) == []
    assert counted(bench)["resident_hits"] == 1


def test_late_while_on_the_link(new_bench):
    bench = new_bench()
    bench.cache.prefetch(0, [5])
    bench.link.start(bench.cache.copy_of(0, 5))
    assert bench.step(0, [5]) == [5]
    counters = bench.cache.counters(0)
    assert (counters.late, counters.prefetch_late, counters.prefetch_loads) == (1, 1, 1)


def test_wasted(new_bench):
    bench = new_bench(slots=2)
    bench.cache.prefetch(0, [5, 6])
    bench.link.finish_all()
    bench.step(0, [0, 1])
    counters = bench.cache.counters(0)
    assert (counters.prefetch_wasted, counters.evictions, counters.prefetch_in_flight) == (2, 2, 0)


def test_a_wrong_one_still_queued_is_cancelled_and_its_victim_is_back(new_bench, pattern):
    bench = new_bench(slots=2)
    bench.fill(0, [0, 1])
    bench.cache.prefetch(0, [5])
    assert residents(bench) == {1}
    assert bench.step(0, [0, 1]) == [], "0 was not lost: nothing had been copied over it"
    assert bench.content(bench.cache.slot_of(0, 0)) == pattern(0, 0)
    counters = bench.cache.counters(0)
    assert (counters.prefetch_issued, counters.prefetch_cancelled, counters.evictions) == (1, 1, 0)
    assert counters.resident_hits == 2


def test_a_queued_one_that_a_newer_prediction_drops_is_cancelled_before_the_step(new_bench):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1, 2])
    bench.cache.prefetch(0, [5], [5, 1])
    bench.cache.prefetch(0, [6], [6, 1])
    assert bench.cache.is_absent(0, 5)
    assert not bench.cache.is_absent(0, 6)
    bench.cache.prefetch(0, [], [2, 1])
    assert residents(bench) == {0, 1, 2}
    assert bench.cache.counters(0).prefetch_cancelled == 2
    bench.cache.prefetch(0, [7])
    bench.cache.prefetch(0, [])
    assert not bench.cache.is_absent(0, 7), "where nothing is expected nothing is known to be wrong"


def test_a_wrong_one_on_the_link_stays_and_its_slot_is_not_touched(new_bench, pattern):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1, 2])
    bench.cache.prefetch(0, [5])
    bench.link.start(bench.cache.copy_of(0, 5))
    slot = bench.link.copies[0].destination
    assert bench.step(0, [3, 4]) == [3, 4]
    assert not bench.cache.is_absent(0, 5)
    bench.link.finish_all()
    bench.cache.settle(0)
    assert residents(bench) == {3, 4, 5}
    assert bytes(slot) == pattern(0, 5)


def test_a_failed_one_is_wasted_and_the_expert_is_fetched_again_on_demand(new_bench):
    bench = new_bench()
    bench.link.failing = {(0, 5)}
    bench.cache.prefetch(0, [5])
    bench.link.finish_all()
    bench.link.failing = set()
    assert bench.step(0, [5]) == [5]
    counters = bench.cache.counters(0)
    assert (counters.prefetch_wasted, counters.cold_misses, counters.loads) == (1, 1, 1)


def test_prefetch_skips_what_is_there_or_on_its_way(new_bench):
    bench = new_bench(slots=4)
    bench.fill(0, [0])
    bench.cache.prefetch(0, [1])
    assert bench.cache.prefetch(0, [0, 1, 2]) == 1
    assert [copy.expert for copy in bench.link.copies] == [1, 2]


def test_prefetch_never_evicts_what_it_wants_nor_what_is_locked_or_in_flight(new_bench):
    bench = new_bench(slots=4)
    bench.fill(0, [0, 1, 2, 3])
    bench.cache.acquire(0, [0, 1])
    assert bench.cache.prefetch(0, [2, 5, 6, 7]) == 1, "0 and 1 are locked, 2 is wanted, then 3 is taken"
    assert residents(bench) == {0, 1, 2}
    bench.cache.check_integrity()


def test_a_landed_prefetch_that_is_wanted_is_no_victim(new_bench):
    bench = new_bench(slots=2)
    bench.fill(0, [0])
    bench.cache.prefetch(0, [5])
    bench.link.finish_all()
    assert bench.cache.prefetch(0, [5, 6]) == 1
    assert residents(bench) == {5}


def test_a_victim_fetched_anew_elsewhere_is_not_restored_twice(new_bench):
    bench = new_bench(slots=3, top_k=1)
    bench.fill(0, [0, 1, 2])
    bench.cache.prefetch(0, [5])
    assert bench.cache.is_absent(0, 0)
    bench.cache.prefetch(0, [0])
    bench.cache.check_integrity()
    bench.step(0, [0])
    counters = bench.cache.counters(0)
    assert (counters.prefetch_cancelled, counters.prefetch_late, counters.evictions) == (1, 1, 2)
    assert residents(bench) == {0, 2}


# ---- few slots


def test_with_k_slots_queued_prefetches_give_way(new_bench):
    bench = new_bench(slots=2, shared=True, num_layers=1)
    bench.fill(0, [0, 1])
    bench.cache.prefetch(0, [2, 3])
    bench.link.start(bench.cache.copy_of(0, 2))
    assert bench.step(0, [4, 5]) == [4, 5], "3 was cancelled, 2 was waited for"
    counters = bench.cache.counters(0)
    assert (counters.prefetch_cancelled, counters.prefetch_wasted) == (1, 1)


def test_prefetches_of_another_layer_in_the_group_give_way_too(new_bench):
    bench = new_bench(slots=1, top_k=2, shared=True)
    bench.cache.prefetch(1, [6, 7])
    assert bench.step(0, [0, 1]) == [0, 1]
    assert bench.cache.counters(1).prefetch_cancelled == 2


def test_a_slot_won_back_from_a_failing_copy(new_bench):
    bench = new_bench(slots=2, num_layers=1)
    bench.link.failing = {(0, 6), (0, 7)}
    bench.cache.prefetch(0, [6, 7])
    for copy in bench.link.copies:
        bench.link.start(copy)
    assert bench.step(0, [0, 1]) == [0, 1]
    assert bench.cache.counters(0).prefetch_wasted == 2


def test_a_step_wider_than_the_group_is_refused_and_changes_nothing(new_bench):
    bench = new_bench(slots=3)
    before = counted(bench)
    with pytest.raises(ValueError, match="no slots left"):
        bench.cache.acquire(0, [0, 1, 2, 3])
    assert counted(bench) == before
    bench.cache.check_integrity()
    assert bench.step(0, [0, 1, 2]) == [0, 1, 2]


def test_a_pool_that_does_not_fit_is_refused(new_bench):
    with pytest.raises(ValueError, match="routes to 2 experts and has 1 slots"):
        new_bench(slots=1)
    bench = new_bench()
    with pytest.raises(ValueError, match="1 groups given for 2 layers"):
        ExpertCache(bench.geometry, bench.pool, bench.link, make_eviction("lru", bench.geometry), [0])
    big = new_bench(num_experts=4).geometry
    from dataclasses import replace

    big = replace(big, layers=tuple(replace(layer, expert_bytes=65) for layer in big.layers))
    with pytest.raises(ValueError, match="65 bytes in smaller slots"):
        ExpertCache(big, bench.pool, bench.link, make_eviction("lru", big))


# ---- substitution


def test_a_substitute_serves_and_the_missed_expert_follows_as_a_prefetch(new_bench, pattern):
    bench = new_bench(slots=4)
    bench.fill(0, [0, 1, 2])
    leases = bench.cache.acquire(0, [0, 5], substitutes={5: 2}, substituted_mass=0.25)
    assert [bench.content(lease.slot) for lease in leases] == [pattern(0, 0), pattern(0, 2)]
    assert all(lease.copy is None for lease in leases)
    assert bench.cache.copy_of(0, 5).priority == PREFETCH
    assert counted(bench) == {
        "routed": 2, "resident_hits": 1, "substituted": 1, "substituted_mass": 0.25, "prefetch_issued": 1,
        "prefill_loads": 3, "bytes_loaded": 192,
    }  # fmt: skip
    bench.link.finish_all()
    bench.cache.release(0)
    assert bench.step(0, [5]) == []
    assert bench.cache.counters(0).prefetched_hits == 1


def test_a_substitute_is_locked_against_the_misses_of_its_step(new_bench):
    bench = new_bench(slots=2)
    bench.fill(0, [0, 1])
    leases = bench.cache.acquire(0, [5, 6], substitutes={6: 0})
    assert leases[1].slot == bench.cache.slot_of(0, 0)
    assert residents(bench) == {0}
    assert bench.cache.is_absent(0, 6), "no slot was left to fetch it into"
    assert bench.cache.counters(0).prefetch_issued == 0


def test_one_in_flight_may_be_substituted_and_stays_a_prefetch(new_bench):
    bench = new_bench(slots=4)
    bench.fill(0, [0, 1, 2])
    bench.cache.prefetch(0, [5])
    bench.cache.acquire(0, [0, 5], substitutes={5: 2})
    assert bench.cache.copy_of(0, 5).priority == PREFETCH
    counters = bench.cache.counters(0)
    assert (counters.substituted, counters.late, counters.prefetch_in_flight) == (1, 0, 1)


def test_one_in_flight_that_is_substituted_gives_its_slot_to_a_miss(new_bench):
    """With k slots there is no other: one holds the substitute."""
    bench = new_bench(slots=2)
    bench.fill(0, [2])
    bench.cache.prefetch(0, [0])
    leases = bench.cache.acquire(0, [0, 1], substitutes={0: 2})
    assert leases[0] == (bench.cache.slot_of(0, 2), None)
    assert bench.cache.copy_of(0, 1) is leases[1].copy
    assert bench.cache.is_absent(0, 0)
    bench.cache.check_integrity()


def test_standing_in_is_a_use(new_bench):
    bench = new_bench(slots=4)
    bench.cache.prefetch(0, [3])
    bench.link.finish_all()
    bench.cache.settle(0)
    bench.cache.acquire(0, [0, 5], substitutes={5: 3})
    counters = bench.cache.counters(0)
    assert (counters.prefetch_useful, counters.prefetched_hits) == (1, 0)
    bench.cache.check_integrity()


@pytest.mark.parametrize("substitutes", [{5: 3}, {5: 0}, {0: 1, 5: 1}])
def test_a_substitute_must_be_resident_unselected_and_distinct(new_bench, substitutes):
    bench = new_bench(slots=4)
    bench.fill(0, [0, 1])
    with pytest.raises(ValueError, match="resident, unselected and distinct"):
        bench.cache.acquire(0, [0, 5], substitutes=substitutes)
    assert bench.cache.counters(0).routed == 0


# ---- giving up, and errors


def test_a_read_error_frees_the_slot_and_the_expert_can_be_fetched_again(new_bench):
    bench = new_bench(slots=2)
    bench.fill(0, [0, 1])
    bench.link.failing = {(0, 5)}
    with pytest.raises(ExpertReadError):
        bench.step(0, [5, 0])
    bench.cache.release(0)
    bench.cache.check_integrity()
    assert residents(bench) == {0}
    assert bench.cache.is_absent(0, 5)
    bench.link.failing = set()
    assert bench.step(0, [5]) == [5]
    counters = bench.cache.counters(0)
    assert (counters.cold_misses, counters.demand_loads, counters.evictions) == (2, 1, 1)


def test_release_takes_back_what_was_never_started(new_bench, pattern):
    bench = new_bench(slots=2)
    bench.fill(0, [0, 1])
    leases = bench.cache.acquire(0, [4, 5])
    bench.link.start(leases[0].copy)
    bench.cache.release(0)
    assert [copy.expert for copy in bench.link.copies] == [4]
    assert residents(bench) == {1}
    assert bench.content(bench.cache.slot_of(0, 1)) == pattern(0, 1)
    assert bench.step(0, [4, 1]) == [4], "still on its way: late"
    counters = bench.cache.counters(0)
    assert (counters.late, counters.prefetch_issued, counters.evictions) == (1, 0, 1)


# ---- prefill


def test_prefill_locks_what_is_there_and_counts_no_decode(new_bench):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1, 2])
    assert bench.cache.lock_resident(0, [0, 1, 7]) == {e: bench.cache.slot_of(0, e) for e in (0, 1)}
    assert bench.cache.prefetch(0, [5, 6]) == 1, "only 2 is not locked"
    bench.cache.release(0)
    assert bench.cache.counters(0).routed == 0


def test_prefill_fills_empty_slots_and_never_evicts(new_bench):
    bench = new_bench(slots=3)
    claimed = [bench.cache.claim_free(0, expert) for expert in range(4)]
    assert [lease.copy.priority for lease in claimed[:3]] == [DEMAND] * 3
    assert claimed[3] is None
    bench.link.finish_all()
    staged = bench.link.submit(0, 3, memoryview(bytearray(64)), 64, DEMAND)
    bench.link.finish_all()
    bench.cache.count_staged([staged])
    bench.cache.release(0)
    assert residents(bench) == {0, 1, 2}
    assert counted(bench) == {"prefill_loads": 4, "bytes_loaded": 256}
    assert bench.step(0, [0, 1]) == []
    assert bench.cache.counters(0).resident_hits == 2


def test_prefill_leases_what_is_resident_or_on_its_way_as_it_is(new_bench):
    bench = new_bench(slots=2)
    bench.fill(0, [0])
    bench.cache.prefetch(0, [5])
    assert bench.cache.claim_free(0, 0) == (bench.cache.slot_of(0, 0), None)
    lease = bench.cache.claim_free(0, 5)
    assert lease.copy.priority == DEMAND
    lease.copy.wait()
    bench.cache.release(0)
    assert (bench.cache.counters(0).prefill_loads, bench.cache.counters(0).demand_loads) == (2, 0)
    assert bench.cache.counters(0).prefetch_in_flight == 1, "prefill is no judge of a decode prefetch"
    assert bench.step(0, [5]) == []
    assert bench.cache.counters(0).prefetched_hits == 1


def test_decode_hits_are_the_same_after_a_long_prefill(new_bench):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1, 2])
    for _ in range(50):
        bench.cache.lock_resident(0, range(8))
        assert all(bench.cache.claim_free(0, expert) is None for expert in range(3, 8))
        bench.cache.release(0)
    assert bench.step(0, [0, 1, 2]) == []


# ---- what the screen sees, and the check itself


def test_residency_codes(new_bench):
    bench = new_bench(slots=4)
    bench.fill(0, [0, 1, 2])
    bench.cache.prefetch(0, [5])
    assert bench.cache.residency_codes(0) == bytes([RESIDENT] * 3 + [HOST] * 2 + [LOADING] + [HOST] * 2)
    codes = marked(bench.cache.residency_codes(0), in_use=[0], substitutes=[2])
    assert codes[:3] == bytes([IN_USE, RESIDENT, SUBSTITUTE])
    assert bench.cache.residency_codes(1) == bytes(8)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.slot_of.__setitem__(0, 2), "not in its slot"),
        (lambda state: state.codes.__setitem__(0, HOST), "has code"),
        (lambda state: state.group.free.append(0), "are filed as"),
        (lambda state: state.unused.add(1), "hit lease"),
        (lambda state: setattr(state.counters, "routed", 9), "9 routed, 0 accounted for"),
        (lambda state: setattr(state.counters, "prefetch_issued", 1), "1 prefetches not judged, 0 found"),
        (lambda state: state.seen.__setitem__(0, 0), "never seen"),
        (lambda state: state.leases.append(state.hit_leases[0]._replace(slot=2)), "leased and empty"),
    ],
)
def test_integrity_notices(new_bench, damage, message):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1])
    bench.cache.check_integrity()
    damage(bench.cache._layers[0])
    with pytest.raises(AssertionError, match=message):
        bench.cache.check_integrity()


def test_another_domain_is_warmed_in_place_of_the_last_one(new_bench, pattern):
    bench = new_bench(num_experts=8, slots=3)
    bench.fill(0, [0, 1, 2])
    bench.step(0, [0, 1])
    before = bench.cache.counters(0)
    copies = bench.cache.warm(0, [5, 1, 6])
    assert [copy.expert for copy in copies] == [5, 6]
    for copy in copies:
        copy.wait()
    bench.cache.release(0)
    bench.cache.check_integrity()
    for expert in (5, 1, 6):
        assert bench.content(bench.cache.slot_of(0, expert)) == pattern(0, expert)
    changed = bench.cache.counters(0) - before
    assert (changed.prefill_loads, changed.evictions, changed.routed) == (2, 2, 0)


def test_warming_takes_what_room_there_is(new_bench):
    bench = new_bench(num_experts=8, slots=3)
    bench.fill(0, [0, 1])
    bench.cache.prefetch(0, [4])
    copies = bench.cache.warm(0, [5, 6, 4, 7])
    assert [copy.expert for copy in copies] == [5, 6], "4 is on its way, and 7 finds no slot"
    bench.link.finish_all()
    bench.cache.release(0)
    assert {e for e in range(8) if bench.cache.is_resident(0, e)} == {4, 5, 6}
    assert bench.cache.warm(0, [4, 5, 6]) == []
    bench.cache.check_integrity()


def test_a_wait_for_room_can_be_stopped_with_the_step_counted(new_bench):
    bench = new_bench(top_k=2, slots=2)
    bench.fill(0, [0, 1])
    bench.cache.prefetch(0, [2, 3])
    for copy in list(bench.link.copies):
        bench.link.start(copy)
    waited = []

    def stop(copy):
        waited.append(copy)
        raise WaitCancelled("Stopped.")

    with pytest.raises(WaitCancelled):
        bench.cache.acquire(0, [4, 5], wait=stop)
    bench.cache.release(0)
    bench.cache.check_integrity()
    assert len(waited) == 1
    assert bench.cache.counters(0).cold_misses == 2
    assert bench.step(0, [4, 5]) == [4, 5]


@pytest.mark.parametrize(("eviction", "left"), [("lru", {1, 2}), ("not-picked", set()), ("keep-none", set())])
def test_what_a_prompt_leaves_stays_where_the_policy_keeps_it(new_bench, eviction, left):
    bench = new_bench(eviction=eviction, shared=True)
    bench.fill(0, [1, 2])
    bench.fill(1, [3, 4])
    bench.cache.drop_unwanted()
    assert residents(bench) == left
    assert bool(residents(bench, 1)) == bool(left)
    bench.cache.check_integrity()
    bench.step(0, [1, 5])
