"""Replays recorded routing through a policy, and counts what the expert cache would count.

A layer's top-k enter together (event-atomic): the step's experts are locked, none of them is evicted for another, and
all are loaded (no bypass). A demand copy has landed when the step ends. Decode steps only, since prefill evicts
nothing from the decode slots.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np

from offload.counters import Counters
from offload.policies.eviction import EvictionPolicy
from offload.replay.trace import RoutingTrace


@dataclass(frozen=True, slots=True)
class PrefetchModel:
    """A fixed prefetch depth, and a coarse model of the link: the number of copies that a layer's compute hides."""

    depth: int
    """Copies queued for the next layer at most, taken from the recorded prediction."""
    hidden_copies: int
    """Copies that land before the next layer's routing is known, this layer's demand copies first."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Counters per layer, as the engine's; `demand_loads` and `prefetch_loads` are the copies that moved."""

    layers: tuple[Counters, ...]

    @property
    def total(self) -> Counters:
        """Over all layers."""
        return Counters.total(self.layers)

    @property
    def loads(self) -> int:
        """Copies host -> device over all layers."""
        return self.total.loads


def replay(
    trace: RoutingTrace,
    eviction: EvictionPolicy,
    slots: Sequence[int],
    *,
    initial: Sequence[Collection[int]] | None = None,
    group_of_layer: Sequence[int] | None = None,
    prefetch: PrefetchModel | None = None,
) -> ReplayResult:
    """Send the decode steps of a trace through a policy, whose history is mutated.

    `slots[g]`: slots of each group, by default one group per layer. `initial[l]`: experts of layer l resident at the
    start. Raises ValueError when a group cannot hold a step, or the initial experts do not fit.
    """
    trace = trace.decode_only()
    groups = tuple(range(trace.geometry.num_layers)) if group_of_layer is None else tuple(group_of_layer)
    _require_room(trace, slots, groups, initial)
    residency = _Residency(trace, eviction, slots, groups)
    for layer, experts in enumerate(initial or ()):
        for expert in experts:
            residency.enter(layer, expert)
    experts_of = [trace.experts_by_step(layer) for layer in range(len(groups))]
    predicted_of = [trace.predicted_by_step(layer) for layer in range(len(groups))] if prefetch else []
    scores = trace.scores
    for step in range(trace.num_steps):
        scores_of = repeat(None) if scores is None else scores[step]
        for layer, layer_scores in zip(range(len(groups)), scores_of, strict=False):
            misses = residency.acquire(layer, experts_of[layer][step], layer_scores)
            if prefetch and layer + 1 < len(groups):
                residency.prefetch(layer + 1, predicted_of[layer + 1][step], prefetch, misses)
    return ReplayResult(tuple(residency.counters))


def _require_room(
    trace: RoutingTrace,
    slots: Sequence[int],
    groups: Sequence[int],
    initial: Sequence[Collection[int]] | None,
) -> None:
    if len(groups) != trace.geometry.num_layers or (initial is not None and len(initial) != len(groups)):
        raise ValueError(f"the trace has {trace.geometry.num_layers} layers: {len(groups)} groups, {initial=}")
    for group, num_slots in enumerate(slots):
        layers = [layer for layer, of in enumerate(groups) if of == group]
        widest = max((trace.geometry.layers[layer].top_k for layer in layers), default=0)
        held = sum(len(initial[layer]) for layer in layers) if initial is not None else 0
        if num_slots < max(widest, held):
            raise ValueError(f"group {group} has {num_slots} slots, for steps of {widest} and {held} initial experts")


class _Arrival(NamedTuple):
    """A queued copy; `victim` (layer, expert) had the slot that it takes, None: the slot was empty."""

    victim: tuple[int, int] | None
    is_victim_unused: bool


class _Residency:
    """Which experts are resident, per group and per layer; which are on their way; the counters."""

    def __init__(
        self, trace: RoutingTrace, eviction: EvictionPolicy, slots: Sequence[int], groups: tuple[int, ...]
    ) -> None:
        layers = trace.geometry.layers
        self.counters = [Counters() for _ in layers]
        self._bytes = [layer.expert_bytes for layer in layers]
        self._eviction = eviction
        self._slots = slots
        self._group_of = groups
        self._num_occupied = [0] * len(slots)
        self._resident = [bytearray(layer.num_experts) for layer in layers]
        self._seen = [bytearray(layer.num_experts) for layer in layers]
        self._unused: list[set[int]] = [set() for _ in layers]
        self._running: tuple[int, list[int]] = (0, [])
        """The layer whose step runs, and its experts: those are locked."""
        self._arrivals: dict[int, _Arrival] = {}
        """Experts on their way to the layer that comes next."""

    def enter(self, layer: int, expert: int) -> None:
        """Makes an expert resident. There must be an empty slot."""
        group = self._group_of[layer]
        self._num_occupied[group] += 1
        self._eviction.enter(group, layer, expert)
        self._resident[layer][expert] = self._seen[layer][expert] = 1

    def acquire(self, layer: int, experts: list[int], scores: np.ndarray | None) -> int:
        """Runs a step of a layer: counts, evicts and loads. Returns the number of demand copies."""
        resident, counters = self._resident[layer], self.counters[layer]
        counters.routed += len(experts)
        if self._arrivals or self._unused[layer]:
            missing = self._settle_prefetches(layer, experts)
        else:
            missing = [expert for expert in experts if not resident[expert]]
            counters.resident_hits += len(experts) - len(missing)
        self._running = layer, experts
        self._eviction.observe(layer, experts)
        for victim in self._eviction.unwanted(self._group_of[layer], layer, experts):
            self._count_eviction(self._remove(victim))
        for arrival in self._evict(layer, len(missing) - self._num_empty(layer), scores):
            self._count_eviction(arrival)
        for expert in missing:
            if self._seen[layer][expert]:
                counters.capacity_misses += 1
            else:
                counters.cold_misses += 1
            self.enter(layer, expert)
        counters.demand_loads += len(missing)
        counters.bytes_loaded += len(missing) * self._bytes[layer]
        return len(missing)

    def prefetch(self, layer: int, predicted: list[int], model: PrefetchModel, num_ahead: int) -> None:
        """Queue the best absent ones for the layer that comes next, and land those whose copy is hidden."""
        absent = [expert for expert in dict.fromkeys(predicted) if not self._resident[layer][expert]][: model.depth]
        empty = [_Arrival(None, False)] * min(self._num_empty(layer), len(absent))
        arrivals = [*empty, *self._evict(layer, len(absent) - len(empty), None)]
        self._arrivals.update(zip(absent, arrivals, strict=False))
        self.counters[layer].prefetch_issued += len(arrivals)
        for expert in list(self._arrivals)[: max(0, model.hidden_copies - num_ahead)]:
            self._land(layer, expert)
            self._unused[layer].add(expert)
            self.counters[layer].prefetch_loads += 1

    def _settle_prefetches(self, layer: int, experts: list[int]) -> list[int]:
        """Cancels, lands or credits the prefetches of this step and counts its hits; returns the missing experts."""
        counters, unused = self.counters[layer], self._unused[layer]
        for expert in [expert for expert in self._arrivals if expert not in experts]:
            self._cancel(self._arrivals.pop(expert))
            counters.prefetch_cancelled += 1
        missing = []
        for expert in experts:
            if expert in self._arrivals:
                self._land(layer, expert)
                counters.late += 1
                counters.prefetch_late += 1
                counters.demand_loads += 1
            elif expert in unused:
                unused.remove(expert)
                counters.prefetched_hits += 1
                counters.prefetch_useful += 1
            elif self._resident[layer][expert]:
                counters.resident_hits += 1
            else:
                missing.append(expert)
        return missing

    def _num_empty(self, layer: int) -> int:
        group = self._group_of[layer]
        return self._slots[group] - self._num_occupied[group] - len(self._arrivals)

    def _evict(self, layer: int, num_victims: int, scores: np.ndarray | None) -> list[_Arrival]:
        """Empties up to so many slots of the layer's group for arrivals: fewer when the rest is locked."""
        if num_victims <= 0:
            return []
        running, experts = self._running
        locked = {(running, expert) for expert in experts}
        victims = self._eviction.victims(self._group_of[layer], num_victims, locked, scores, layer)
        return [self._remove(victim) for victim in victims]

    def _remove(self, victim: tuple[int, int]) -> _Arrival:
        """Removes an expert; returns the arrival that takes its slot."""
        at, expert = victim
        group = self._group_of[at]
        self._num_occupied[group] -= 1
        self._eviction.leave(group, at, expert)
        self._resident[at][expert] = 0
        is_unused = expert in self._unused[at]
        self._unused[at].discard(expert)
        return _Arrival(victim, is_unused)

    def _cancel(self, arrival: _Arrival) -> None:
        """Cancels a queued copy: its victim is resident again."""
        if arrival.victim is not None:
            self.enter(*arrival.victim)
            if arrival.is_victim_unused:
                self._unused[arrival.victim[0]].add(arrival.victim[1])

    def _land(self, layer: int, expert: int) -> None:
        self._count_eviction(self._arrivals.pop(expert))
        self.enter(layer, expert)
        self.counters[layer].bytes_loaded += self._bytes[layer]

    def _count_eviction(self, arrival: _Arrival) -> None:
        if arrival.victim is not None:
            counters = self.counters[arrival.victim[0]]
            counters.evictions += 1
            counters.prefetch_wasted += arrival.is_victim_unused
