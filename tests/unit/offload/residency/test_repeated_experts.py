"""A router that chooses an expert twice for one token: one lease, one count, one load."""

from offload.policies.eviction.lru import LruEviction
from offload.residency.cache import ExpertCache


def test_a_hit_named_twice_is_one_hit_with_one_lease(new_bench):
    bench = new_bench(slots=3)
    bench.fill(0, [0, 1])
    leases = bench.cache.acquire(0, [1, 0, 1])
    assert leases[0] == leases[2] != leases[1]
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.resident_hits) == (2, 2)
    bench.cache.check_integrity()


def test_a_miss_named_twice_is_one_miss_and_one_copy(new_bench):
    bench = new_bench(slots=2)
    bench.fill(0, [0])
    leases = bench.cache.acquire(0, [5, 0, 5])
    assert leases[0] == leases[2]
    assert [copy.expert for copy in bench.link.copies] == [5]
    bench.link.finish_all()
    bench.cache.release(0)
    bench.cache.check_integrity()
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.cold_misses, counters.resident_hits, counters.demand_loads) == (2, 1, 1, 1)


def test_a_late_one_named_twice_is_late_once(new_bench):
    bench = new_bench()
    bench.cache.prefetch(0, [5, 5])
    assert len(bench.link.copies) == 1
    bench.cache.acquire(0, [5, 5])
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.late, counters.prefetch_late) == (1, 1, 1)
    bench.cache.check_integrity()


def test_a_step_of_repeats_needs_no_more_slots_than_experts(new_bench):
    bench = new_bench(slots=2)
    assert bench.step(0, [4, 4, 4, 5]) == [4, 4, 4, 5]
    assert bench.step(0, [4, 5, 5]) == []


def test_a_substituted_one_named_twice_is_substituted_once(new_bench):
    bench = new_bench(slots=4)
    bench.fill(0, [0, 1])
    leases = bench.cache.acquire(0, [5, 0, 5], substitutes={5: 1}, substituted_mass=0.5)
    assert leases[0] == leases[2] == (bench.cache.slot_of(0, 1), None)
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.substituted, counters.substituted_mass) == (2, 1, 0.5)
    bench.cache.check_integrity()


class Watcher(LruEviction):
    """An eviction policy that notes what it is told."""

    def __init__(self, geometry):
        super().__init__(geometry)
        self.observed, self.asked = [], []

    def observe(self, layer, experts):
        super().observe(layer, experts)
        self.observed.append(list(experts))

    def victims(self, group, num_victims, held, scores, layer):
        self.asked.append(num_victims)
        return super().victims(group, num_victims, held, scores, layer)


def test_the_policy_sees_distinct_experts_and_chooses_all_victims_at_once(new_bench):
    bench = new_bench(num_experts=8, top_k=4, slots=4)
    policy = Watcher(bench.geometry)
    cache = ExpertCache(bench.geometry, bench.pool, bench.link, policy)
    for experts in ([0, 1, 2, 3], [3, 4, 4, 5, 6], [3, 3, 4]):
        cache.acquire(0, experts)
        bench.link.finish_all()
        cache.release(0)
        cache.check_integrity()
    assert policy.observed == [[0, 1, 2, 3], [3, 4, 5, 6], [3, 4]]
    assert policy.asked == [3]
