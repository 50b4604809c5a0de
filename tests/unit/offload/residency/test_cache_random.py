"""The expert cache under random interleavings: its state agrees with itself, and a leased slot holds its expert."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.counters import Counters
from offload.errors import ExpertReadError, WaitCancelled

NUM_EXPERTS = 7
TOP_K = 2
NUM_LAYERS = 2

experts = st.lists(st.integers(0, NUM_EXPERTS - 1), min_size=1, max_size=TOP_K, unique=True)
with_repeats = st.lists(st.sampled_from(range(NUM_EXPERTS)), min_size=1, max_size=TOP_K + 1).filter(
    lambda chosen: len(set(chosen)) <= TOP_K
)
wanted = st.lists(st.integers(0, NUM_EXPERTS - 1), min_size=1, max_size=4, unique=True)
layers = st.integers(0, NUM_LAYERS - 1)
some_copy = st.integers(0, 9)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("step"), layers, experts, st.booleans(), st.booleans()),
        st.tuples(st.just("step"), layers, with_repeats, st.booleans(), st.booleans()),
        st.tuples(st.just("release"), layers),
        st.tuples(st.just("prefetch"), layers, wanted),
        st.tuples(st.just("start"), some_copy),
        st.tuples(st.just("finish"), some_copy, st.booleans()),
        st.tuples(st.just("prefill"), layers, wanted),
        st.tuples(st.just("fill"), layers, st.booleans()),
    ),
    max_size=40,
)


class Driver:
    """Runs operations on a bench and checks, after each, everything that must hold."""

    def __init__(self, bench, pattern) -> None:
        self.bench = bench
        self.pattern = pattern
        self.held: dict[int, list[tuple[int, int]]] = {layer: [] for layer in range(NUM_LAYERS)}
        """Per layer: the (expert, slot) pairs leased and known to be there."""
        self.locked: dict[int, set[int]] = {layer: set() for layer in range(NUM_LAYERS)}
        self.num_routed = 0
        self.before = Counters()

    def step(self, layer, chosen, is_waiting, is_approx) -> None:
        """One decode step up to, not including, its release; `is_waiting` False: the user stopped before any wait."""
        cache = self.bench.cache
        self.release(layer)
        substitutes = self.substitutes(layer, chosen) if is_approx else {}
        locked = set.union(*self.locked.values())
        try:
            leases = cache.acquire(layer, chosen, substitutes=substitutes, substituted_mass=0.5 * len(substitutes))
        except ValueError:
            assert len(locked) + len(set(chosen)) > len(cache._layers[layer].group.slots), "refused without need"
            return
        self.num_routed += len(set(chosen))
        self.locked[layer] = {lease.slot for lease in leases}
        for expert, lease in zip(chosen, leases, strict=True):
            if lease.copy is None:
                self.held[layer].append((substitutes.get(expert, expert), lease.slot))
        if is_waiting:
            for expert, lease in zip(chosen, leases, strict=True):
                if lease.copy is not None:
                    with suppress(ExpertReadError):
                        lease.copy.wait()
                        self.held[layer].append((expert, lease.slot))

    def substitutes(self, layer, chosen) -> dict[int, int]:
        """Stand-ins for the absent ones, as far as there are any."""
        cache = self.bench.cache
        spare = [e for e in range(NUM_EXPERTS) if e not in chosen and cache.is_resident(layer, e)]
        return dict(zip([e for e in dict.fromkeys(chosen) if not cache.is_resident(layer, e)], spare, strict=False))

    def release(self, layer) -> None:
        self.bench.cache.release(layer)
        self.held[layer] = []
        self.locked[layer] = set()

    def prefetch(self, layer, chosen) -> None:
        there = {expert for expert in chosen if self.bench.cache.is_resident(layer, expert)}
        self.bench.cache.prefetch(layer, chosen)
        assert all(self.bench.cache.is_resident(layer, expert) for expert in there)

    def fill(self, layer, is_stopped) -> None:
        """What nobody asks for goes into empty slots alone."""
        cache = self.bench.cache
        before = cache.residents()
        cache.fill(layer)
        if is_stopped:
            cache.stop_filling(layer)
        assert all(set(was) <= set(now) for was, now in zip(before, cache.residents(), strict=True)), "filling evicted"

    def start(self, which) -> None:
        if self.bench.link.copies:
            self.bench.link.start(self.bench.link.copies[which % len(self.bench.link.copies)])

    def finish(self, which, is_failing) -> None:
        link = self.bench.link
        if link.copies:
            copy = link.copies[which % len(link.copies)]
            link.failing = {(copy.layer, copy.expert)} if is_failing else set()
            link.finish(copy)
            link.failing = set()

    def prefill(self, layer, chosen) -> None:
        """Claim and lock without a decode step; released by a later operation."""
        cache = self.bench.cache
        slots = cache.lock_resident(layer, chosen)
        self.held[layer] += slots.items()
        self.locked[layer].update(slots.values())
        before = [cache.is_resident(at, expert) for at in range(NUM_LAYERS) for expert in range(NUM_EXPERTS)]
        for expert in chosen:
            lease = cache.claim_free(layer, expert)
            if lease is not None:
                self.locked[layer].add(lease.slot)
                assert lease.copy is not None or expert in slots
        after = [cache.is_resident(at, expert) for at in range(NUM_LAYERS) for expert in range(NUM_EXPERTS)]
        assert before == after, "prefill evicted"

    def check(self) -> None:
        cache = self.bench.cache
        cache.check_integrity()
        for layer, pairs in self.held.items():
            for expert, slot in pairs:
                assert self.bench.content(slot) == self.pattern(layer, expert), "a locked slot was overwritten"
            for expert in range(NUM_EXPERTS):
                slot = cache.slot_of(layer, expert)
                assert slot is None or self.bench.content(slot) == self.pattern(layer, expert)
        now = cache.total_counters()
        assert now.routed == self.num_routed
        assert all(getattr(now - self.before, name) >= 0 for name in Counters.__slots__), "a counter went back"
        self.before = now


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("slots", [TOP_K, TOP_K + 1, TOP_K + 3])
@settings(max_examples=120, deadline=None)
@given(operations=operations, eviction=st.sampled_from(["lru", "lfu", "history"]))
def test_any_interleaving(new_bench, pattern, slots, shared, operations, eviction):
    bench = new_bench(NUM_LAYERS, NUM_EXPERTS, TOP_K, slots, eviction, shared)
    driver = Driver(bench, pattern)
    for name, *arguments in operations:
        getattr(driver, name)(*arguments)
        driver.check()
    bench.link.finish_all()
    for layer in range(NUM_LAYERS):
        driver.release(layer)
    driver.check()
    assert driver.before.prefetch_in_flight == sum(len(book.unused) for book in bench.cache._layers)


class JitterySource:
    """Reads in two halves with a pause between them, and fails now and then."""

    def __init__(self, pattern, seed: int) -> None:
        self._pattern = pattern
        self._random = random.Random(seed)

    def read_into(self, layer, expert, destination) -> int:
        half = len(destination) // 2
        whole = self._pattern(layer, expert, len(destination))
        destination[:half] = b"\xff" * half
        time.sleep(self._random.choice((0, 0, 1e-5, 2e-4)))
        if self._random.random() < 0.02:
            raise ExpertReadError("now and then")
        destination[:half], destination[half:] = whole[:half], whole[half:]
        return len(destination)


@pytest.mark.parametrize(("slots", "shared", "num_threads"), [(2, False, 2), (3, False, 3), (3, True, 2), (6, True, 1)])
def test_the_same_with_real_threads(new_bench, new_link, pattern, drain, slots, shared, num_threads):
    choice = random.Random(slots)
    link = new_link(JitterySource(pattern, slots), num_threads=num_threads)
    bench = new_bench(NUM_LAYERS, NUM_EXPERTS, TOP_K, slots, "history", shared, link)
    num_loaded = num_routed = 0
    for token in range(400):
        layer = token % NUM_LAYERS
        chosen = choice.sample(range(NUM_EXPERTS), TOP_K)
        leases = bench.cache.acquire(layer, chosen)
        num_routed += len(chosen)
        bench.cache.prefetch(1 - layer, choice.sample(range(NUM_EXPERTS), 2))
        if choice.random() < 0.2:
            bench.cache.fill(layer)
        is_stopped = choice.random() < 0.05
        for expert, lease in zip(chosen, leases, strict=True):
            try:
                if lease.copy is not None:
                    lease.copy.wait((lambda: True) if is_stopped else None)
            except (ExpertReadError, WaitCancelled):
                break
            assert bench.content(lease.slot) == pattern(layer, expert)
            num_loaded += lease.copy is not None
        bench.cache.release(layer)
        bench.cache.check_integrity()
    drain(link)
    for layer in range(NUM_LAYERS):
        bench.cache.settle(layer)
        for expert in range(NUM_EXPERTS):
            slot = bench.cache.slot_of(layer, expert)
            assert slot is None or bench.content(slot) == pattern(layer, expert)
    bench.cache.check_integrity()
    counters = bench.cache.total_counters()
    assert counters.routed == num_routed
    assert counters.loads >= num_loaded > 0
    assert counters.bytes_loaded == counters.loads * 64 == link.bytes_moved
