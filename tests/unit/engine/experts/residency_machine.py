"""Everything between host and device but the model: moved as the engine moves it, checked after every move."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from engine.experts.prefill import ExpertPrefill, LayerPrefill
from engine.experts.ring_prefill import RingPrefill
from offload.counters import Counters
from offload.errors import ExpertReadError, WaitCancelled
from offload.geometry import Geometry, LayerGeometry, layer_staging_bytes, pool_bytes
from offload.link.expert_link import PREFETCH
from offload.link.lease import Lease
from offload.link.slot_pool import SlotPool
from offload.link.staging import LayerStaging, StagingRing
from offload.policies.eviction import make_eviction
from offload.residency.cache import ExpertCache
from tests.unit.engine.experts.wandering_link import Entry, LoggedLink, Name, drain

RING_SLOTS = 3


@dataclass(frozen=True)
class Shape:
    """A small model, its slots and its policies."""

    num_experts: tuple[int, ...]
    top_k: tuple[int, ...]
    slots: tuple[int, ...]
    is_shared: bool
    """One group of all slots for all layers."""
    eviction: str
    is_staged: bool
    """Prefill stages whole layers; else experts stream through a ring."""
    seed: int

    @property
    def geometry(self) -> Geometry:
        pairs = enumerate(zip(self.num_experts, self.top_k, strict=True))
        return Geometry(tuple(LayerGeometry(i, experts, k, 64 if i % 2 else 48) for i, (experts, k) in pairs))


@dataclass
class Routed:
    """How a layer's routed experts are met: fields of Counters."""

    resident_hits: int = 0
    prefetched_hits: int = 0
    late: int = 0
    cold_misses: int = 0
    capacity_misses: int = 0
    substituted: int = 0


@dataclass
class Step:
    """One layer's step as it should be met, and the copies it meets."""

    routed: Routed = field(default_factory=Routed)
    used: list[Entry] = field(default_factory=list)
    """What the experts that are there came by."""
    late: list[Entry] = field(default_factory=list)


class ResidencyMachine:
    """A cache, a link and a prefill path of one shape."""

    def __init__(self, shape: Shape, link: Any) -> None:
        """`link`: a WanderingLink, or a real one."""
        self.shape, self.geometry, self.log = shape, shape.geometry, LoggedLink(link)
        self.is_approx = False
        expert_bytes = tuple(layer.expert_bytes for layer in self.geometry.layers)
        groups = ((sum(shape.slots),), (max(expert_bytes),)) if shape.is_shared else (shape.slots, expert_bytes)
        self.pool = SlotPool(*groups)
        assert self.pool.total_bytes == pool_bytes(*groups)
        group_of_layer = [0] * self.geometry.num_layers if shape.is_shared else None
        eviction = make_eviction(shape.eviction, self.geometry)
        self.cache = ExpertCache(self.geometry, self.pool, self.log, eviction, group_of_layer)  # type: ignore[arg-type]
        self.prefill = self._make_prefill(max(expert_bytes))
        self._looks_left: int | None = None
        self._routed = [Routed() for _ in self.geometry.layers]
        self._last = [Counters() for _ in self.geometry.layers]

    def _make_prefill(self, widest_bytes: int) -> ExpertPrefill:
        link: Any = self.log
        if self.shape.is_staged:
            staging = LayerStaging(self.geometry, link)
            assert staging.total_bytes == layer_staging_bytes(self.geometry)
            return LayerPrefill(self.cache, staging, self.geometry, self._is_stopped)
        ring = StagingRing(RING_SLOTS, widest_bytes, link)
        assert ring.total_bytes == pool_bytes((RING_SLOTS,), (widest_bytes,))
        return RingPrefill(self.cache, ring, self.geometry, self._is_stopped)

    def stop_after(self, num_samples: int | None) -> None:
        """The user stops: seen by whoever looks after so many others. None: never."""
        self._looks_left = num_samples

    def _is_stopped(self) -> bool:
        if self._looks_left is None:
            return False
        self._looks_left -= 1
        return self._looks_left < 0

    def _some(self, chance: random.Random, layer: int, at_most: int) -> list[int]:
        """Different experts of a layer, in some order, at least one."""
        num_experts = self.shape.num_experts[layer]
        return chance.sample(range(num_experts), chance.randint(1, min(at_most, num_experts)))

    def _routed_to(self, chance: random.Random, layer: int) -> list[int]:
        """At most k experts; one time in four, one of them is named twice."""
        experts = self._some(chance, layer, self.shape.top_k[layer])
        if chance.random() < 0.25:
            experts.insert(chance.randrange(len(experts) + 1), chance.choice(experts))
        return experts

    # -- decode -------------------------------------------------------------------------------------------------------

    def decode(self, chance: random.Random) -> None:
        """One token, with experts of the next layers prefetched while one runs."""
        try:
            for layer in range(self.geometry.num_layers):
                experts = self._routed_to(chance, layer)
                later = range(layer + 1, self.geometry.num_layers)
                ahead = {target: self._some(chance, target, 3) for target in later if chance.random() < 0.5}
                self._decode_layer(layer, experts, ahead)
                self.check()
        except (WaitCancelled, ExpertReadError):
            self.check()

    def _decode_layer(self, layer: int, experts: Sequence[int], ahead: dict[int, list[int]]) -> None:
        self.cache.settle(layer)
        substitutes = self._substitutes(layer, experts) if self.is_approx else {}
        try:
            leases = self._acquire(layer, experts, substitutes)
            for target, wanted in ahead.items():
                self.cache.prefetch(target, wanted)
            self.check()
            pairs = [(substitutes.get(e, e), lease) for e, lease in zip(experts, leases, strict=True)]
            for expert, lease in sorted(pairs, key=lambda pair: pair[1].copy is not None):
                if lease.copy is not None:
                    lease.copy.wait(self._is_stopped)
                self._require_content(layer, expert, lease.slot)
            for expert, lease in pairs:
                self._require_content(layer, expert, lease.slot)
        finally:
            self.cache.release(layer)

    def _substitutes(self, layer: int, experts: Sequence[int]) -> dict[int, int]:
        here = self._residents(layer)
        stand_ins = [expert for expert in here if expert not in experts]
        return dict(zip([expert for expert in dict.fromkeys(experts) if expert not in here], stand_ins, strict=False))

    def _acquire(self, layer: int, experts: Sequence[int], substitutes: dict[int, int]) -> list[Lease]:
        """Stopped in a wait for room, the step counts all the same."""
        step = self._expect(layer, experts, substitutes)
        scores = np.random.default_rng(self.shape.seed).normal(size=self.shape.num_experts[layer])
        mass = 0.25 * len(substitutes)
        try:
            return self.cache.acquire(
                layer, experts, lambda: scores, substitutes, mass, lambda copy: copy.wait(self._is_stopped)
            )
        finally:
            self._note(layer, step)

    def _expect(self, layer: int, experts: Sequence[int], substitutes: dict[int, int]) -> Step:
        step, coming_back = Step(), self._coming_back(layer, experts)
        for expert in dict.fromkeys(experts):
            copy = self.cache.copy_of(layer, expert)
            brought = self._brought(layer, substitutes.get(expert, expert))
            if expert in substitutes:
                step.routed.substituted += 1
                step.used += brought[-1:]
            elif copy is not None:
                step.routed.late += 1
                step.late.append(self.log.entry_of(copy))
            elif self.cache.is_resident(layer, expert) or expert in coming_back:
                step.routed.prefetched_hits += brought[-1].is_unused_prefetch
                step.routed.resident_hits += not brought[-1].is_unused_prefetch
                step.used += brought[-1:]
            else:
                step.routed.capacity_misses += bool(brought)
                step.routed.cold_misses += not brought
        return step

    def _coming_back(self, layer: int, experts: Sequence[int]) -> set[int]:
        """Who gets its slot back once the wrong prefetches of the layer are cancelled."""
        arrivals = [a for a in self.cache._layers[layer].arrivals.values() if not a.copy.is_started]
        wrong = [a for a in arrivals if a.copy.priority == PREFETCH and a.expert not in experts]
        return {arrival.previous.expert for arrival in wrong if arrival.previous and arrival.previous.layer == layer}

    def _brought(self, layer: int, expert: int) -> list[Entry]:
        """The copies that have brought an expert into the decode set, the last one last."""
        return [entry for entry in self._into_slots(layer) if entry.name.expert == expert]

    def _into_slots(self, layer: int) -> list[Entry]:
        memory = self.pool.memory(0).obj
        landed = [entry for entry in self.log.entries if entry.memory is memory and entry.has_landed]
        return [entry for entry in landed if entry.name.layer == layer]

    def _note(self, layer: int, step: Step) -> None:
        for entry in step.used:
            entry.is_used = True
        for entry in step.late:
            entry.is_late = True
        for name, count in vars(step.routed).items():
            setattr(self._routed[layer], name, getattr(self._routed[layer], name) + count)

    # -- prefill, domains, and the link by itself ---------------------------------------------------------------------

    def prompt(self, chance: random.Random, num_tok: int) -> None:
        """A chunk of so many tokens."""
        before = [self._residents(layer) for layer in range(self.geometry.num_layers)]
        try:
            for layer, top_k in enumerate(self.shape.top_k):
                self._prefill_layer(layer, self._some(chance, layer, num_tok * top_k), num_tok)
                self._require_still_there(before)
                self.check()
        except (WaitCancelled, ExpertReadError):
            self.prefill.abandon()
            self._require_still_there(before)
            self.check()

    def _prefill_layer(self, layer: int, experts: Sequence[int], num_tok: int) -> None:
        resident = self.cache.lock_resident(layer, experts)
        try:
            for expert, slot in resident.items():
                self._require_content(layer, expert, slot)
            absent = [expert for expert in experts if expert not in resident]
            served = []
            with closing(self.prefill.fetch(layer, absent, absent[::-1], num_tok)) as arriving:
                for expert, slot, staged in chain.from_iterable(arriving):
                    self.check()
                    served.append(expert)
                    if slot is not None:
                        self._require_content(layer, expert, slot)
                    else:
                        assert staged is not None
                        num_bytes = self.geometry.layers[layer].expert_bytes
                        assert bytes(staged[:num_bytes]) == Name(layer, expert).content(num_bytes)
            assert sorted(served) == sorted(absent)
        finally:
            self.cache.release(layer)

    def warm(self, chance: random.Random) -> None:
        """Another domain: every layer gets other experts, as many as it has slots."""
        try:
            for layer, (num_experts, slots) in enumerate(zip(self.shape.num_experts, self.shape.slots, strict=True)):
                for copy in self.cache.warm(layer, chance.sample(range(num_experts), slots)):
                    copy.wait(self._is_stopped)
                self.cache.settle(layer)
                self.check()
        except (WaitCancelled, ExpertReadError):
            self.check()

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The state agrees with itself, resident experts are in their slots, and no counter goes back."""
        self.cache.check_integrity()
        for layer in range(self.geometry.num_layers):
            for expert, slot in self._residents(layer).items():
                self._require_content(layer, expert, slot)
            now = self.cache.counters(layer)
            self._require_expected(layer, now)
            change = now - self._last[layer]
            went_back = [name for name in Counters.__slots__ if getattr(change, name) < 0]
            assert not went_back, f"layer {layer}: {went_back} went back"
            self._last[layer] = now

    def _require_expected(self, layer: int, now: Counters) -> None:
        for name, count in vars(self._routed[layer]).items():
            assert getattr(now, name) == count, f"layer {layer}: {name} is {getattr(now, name)}, not {count}"

    def finish(self) -> None:
        """Everything on its way lands: then what was counted is what was moved."""
        drain(self.log.link)
        self.prefill.abandon()
        for layer in range(self.geometry.num_layers):
            self.cache.settle(layer)
        self.check()
        for layer in range(self.geometry.num_layers):
            self._require_moved(layer, self.cache.counters(layer))
            self._require_judged(layer, self.cache.counters(layer))

    def _require_moved(self, layer: int, now: Counters) -> None:
        landed = [entry for entry in self.log.entries if entry.name.layer == layer and entry.has_landed]
        assert now.loads == len(landed), f"layer {layer}: {now.loads} loads counted, {len(landed)} copies landed"
        assert now.bytes_loaded == sum(entry.copy.moved_bytes for entry in landed)
        assert len(self._into_slots(layer)) - now.evictions == len(self._residents(layer))
        met = now.resident_hits + now.prefetched_hits + now.late + now.misses + now.substituted
        assert now.routed == met

    def _require_judged(self, layer: int, now: Counters) -> None:
        prefetches = [entry for entry in self.log.entries if entry.name.layer == layer and entry.was_prefetch]
        assert now.prefetch_issued == len(prefetches)
        assert now.prefetch_late == sum(entry.is_late for entry in prefetches)
        assert now.prefetch_cancelled == sum(entry.is_taken_back and not entry.is_late for entry in prefetches)
        assert now.prefetch_useful == sum(entry.is_used and not entry.is_late for entry in prefetches)
        here = [self._brought(layer, expert)[-1] for expert in self._residents(layer)]
        assert now.prefetch_in_flight == sum(entry.is_unused_prefetch for entry in here)

    def _residents(self, layer: int) -> dict[int, int]:
        """Expert -> slot."""
        slots = {expert: self.cache.slot_of(layer, expert) for expert in range(self.shape.num_experts[layer])}
        return {expert: slot for expert, slot in slots.items() if slot is not None}

    def _require_content(self, layer: int, expert: int, slot: int) -> None:
        num_bytes = self.geometry.layers[layer].expert_bytes
        content = bytes(self.pool.memory(slot)[:num_bytes])
        assert content == Name(layer, expert).content(num_bytes), f"slot {slot} does not hold {layer, expert}"

    def _require_still_there(self, before: Iterable[dict[int, int]]) -> None:
        for layer, slots in enumerate(before):
            now = self._residents(layer)
            assert slots.items() <= now.items(), f"prefill evicted from layer {layer}: {slots} became {now}"
