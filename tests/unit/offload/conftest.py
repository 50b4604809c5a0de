"""Doubles for the host tier and the link, and an expert cache on top of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import pytest

from offload.errors import ExpertReadError
from offload.geometry import Geometry, LayerGeometry
from offload.link.expert_link import DEMAND, PREFETCH
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import make_eviction
from offload.residency.cache import ExpertCache

EXPERT_BYTES = 64
TIMEOUT_S = 10
"""A gate that stays shut this long is a failure, not a delay."""


def expert_bytes(layer: int, expert: int, num_bytes: int = EXPERT_BYTES) -> bytes:
    """What expert's slot must hold: a pattern no other expert has."""
    return bytes([layer + 1, expert + 1]) * (num_bytes // 2)


class GatedSource:
    """A source whose reads wait at a gate, so that a test decides what lands when."""

    def __init__(self, *, is_open: bool = True) -> None:
        self._changed = threading.Condition()
        self._is_open = is_open
        self._allowed: set[tuple[int, int]] = set()
        self.failing: set[tuple[int, int]] = set()
        self.error: Exception = ExpertReadError("The disk is gone.")
        self.started: list[tuple[int, int]] = []

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        with self._changed:
            self.started.append((layer, expert))
            self._changed.notify_all()
            is_let = self._changed.wait_for(lambda: self._is_open or (layer, expert) in self._allowed, TIMEOUT_S)
            self._allowed.discard((layer, expert))
            assert is_let, "nobody opened the gate"
        if (layer, expert) in self.failing:
            raise self.error
        destination[:] = expert_bytes(layer, expert, len(destination))
        return len(destination)

    def open(self) -> None:
        """Let every read through, from now on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def let(self, layer: int, expert: int) -> None:
        """Let one read of this expert through."""
        with self._changed:
            self._allowed.add((layer, expert))
            self._changed.notify_all()

    def wait_started(self, num_reads: int) -> None:
        """Wait until so many reads have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.started) >= num_reads, TIMEOUT_S)


@dataclass(eq=False)
class StepCopy:
    """A copy that moves when it is told to, or waited for."""

    link: StepLink
    layer: int
    expert: int
    destination: memoryview
    num_bytes: int
    priority: int
    moved_bytes: int = 0
    is_started: bool = False
    is_done: bool = False
    error: ExpertReadError | None = None

    def wait(self, is_cancelled=None) -> float:
        if not self.is_done:
            self.link.finish(self)
        if self.error:
            raise self.error
        return 0.0


class StepLink:
    """A link without threads: every step is the test's, and every reuse of a slot is checked."""

    def __init__(self) -> None:
        self.copies: list[StepCopy] = []
        """Queued or started."""
        self.failing: set[tuple[int, int]] = set()

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> StepCopy:
        copy = StepCopy(self, layer, expert, destination, num_bytes, priority)
        for other in self.copies:
            assert not _is_same_memory(other.destination, destination), "a slot with a copy in flight was given away"
        self.copies.append(copy)
        return copy

    bytes_per_s = None

    def promote(self, copy: StepCopy) -> bool:
        if copy.is_started or copy.priority != PREFETCH:
            return False
        copy.priority = DEMAND
        return True

    def demand_eta_s(self, copy: StepCopy) -> float | None:
        return None

    def cancel(self, copy: StepCopy) -> bool:
        if copy.is_started or copy not in self.copies:
            return False
        self.copies.remove(copy)
        copy.error, copy.is_done = ExpertReadError("cancelled"), True
        return True

    def start(self, copy: StepCopy) -> None:
        """The slot's old bytes are gone from here on."""
        copy.is_started = True
        copy.destination[:] = b"\xff" * len(copy.destination)

    def finish(self, copy: StepCopy) -> None:
        """Land, or fail if the expert is among `failing`."""
        self.start(copy)
        if (copy.layer, copy.expert) in self.failing:
            copy.error = ExpertReadError("The disk is gone.")
        else:
            copy.destination[:] = expert_bytes(copy.layer, copy.expert, copy.num_bytes)
            copy.moved_bytes = copy.num_bytes
        copy.is_done = True
        self.copies.remove(copy)

    def finish_all(self) -> None:
        for copy in list(self.copies):
            self.finish(copy)


def _is_same_memory(one: memoryview, other: memoryview) -> bool:
    """Writing through one shows in the other."""
    before = one[0]
    one[0] = before ^ 1
    is_same = other[0] == before ^ 1 and one.obj is other.obj
    one[0] = before
    return is_same and (other[0] == before)


@dataclass
class Bench:
    """An expert cache with everything around it."""

    geometry: Geometry
    pool: SlotPool
    link: StepLink
    cache: ExpertCache

    def content(self, slot: int) -> bytes:
        return bytes(self.pool.memory(slot)[:EXPERT_BYTES])

    def fill(self, layer: int, experts) -> None:
        """Make experts resident, in empty slots, without touching a decode counter."""
        for expert in experts:
            assert self.cache.claim_free(layer, expert) is not None
        self.link.finish_all()
        self.cache.release(layer)

    def step(self, layer: int, experts, **options) -> list[int]:
        """A whole decode step; returns the experts that had to be waited for."""
        leases = self.cache.acquire(layer, experts, **options)
        waited = [expert for expert, lease in zip(experts, leases, strict=True) if lease.copy is not None]
        for lease in leases:
            if lease.copy is not None:
                lease.copy.wait()
        self.cache.release(layer)
        self.cache.check_integrity()
        return waited


def make_bench(num_layers=2, num_experts=8, top_k=2, slots=3, eviction="lru", shared=False, link=None) -> Bench:
    """`slots` per layer; `shared`: one group of all slots for all layers."""
    geometry = Geometry(tuple(LayerGeometry(i, num_experts, top_k, EXPERT_BYTES) for i in range(num_layers)))
    groups = (slots * num_layers,) if shared else (slots,) * num_layers
    pool = SlotPool(groups, (EXPERT_BYTES,) * len(groups))
    link = link or StepLink()
    group_of_layer = [0] * num_layers if shared else None
    cache = ExpertCache(geometry, pool, link, make_eviction(eviction, geometry), group_of_layer)
    return Bench(geometry, pool, link, cache)


@pytest.fixture(scope="session")
def new_bench():
    """Factory of benches on a StepLink (or a `link` of one's own)."""
    return make_bench


def wait_until_idle(link: Link) -> None:
    """Wait until a link has nothing queued and nothing on its way."""
    end_s = time.monotonic() + TIMEOUT_S
    while link.queued or link._active:
        assert time.monotonic() < end_s, "the link has work left"
        time.sleep(0.0005)


@pytest.fixture(scope="session")
def drain():
    """Waits until a link has nothing queued and nothing on its way."""
    return wait_until_idle


@pytest.fixture(scope="session")
def pattern():
    """What an expert's slot must hold."""
    return expert_bytes


@pytest.fixture(scope="session")
def new_source():
    """Factory of gated sources."""
    return GatedSource


@pytest.fixture
def new_link():
    """Factory of real links, closed at the end."""
    links: list[Link] = []

    def make(*arguments, **options) -> Link:
        links.append(Link(*arguments, **options))
        return links[-1]

    yield make
    for link in links:
        link.close()
