"""Admits a decode step that is not all hits: misses, experts on their way, prefetched experts, substitutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from offload.link.expert_link import DEMAND, ExpertCopy
from offload.link.lease import Lease
from offload.policies.eviction import EvictionPolicy
from offload.residency.slot_finder import SlotFinder
from offload.residency.slot_state import LayerState
from offload.residency.slot_transitions import SlotTransitions

if TYPE_CHECKING:
    import numpy as np


class StepAdmission:
    """Counts a step's experts, locks their slots and submits the misses. Mutates the slot state."""

    def __init__(self, transitions: SlotTransitions, slots: SlotFinder, eviction: EvictionPolicy) -> None:
        self._transitions = transitions
        self._slots = slots
        self._eviction = eviction

    def admit(
        self,
        state: LayerState,
        experts: Sequence[int],
        scores: Callable[[], np.ndarray | None] | None,
        substitutes: Mapping[int, int],
        substituted_mass: float,
        wait: Callable[[ExpertCopy], object],
    ) -> dict[int, Lease]:
        """The lease of each of `experts` (distinct); for the arguments and what is raised see `ExpertCache.acquire`."""
        absent = [e for e in experts if state.slot_of[e] < 0 and e not in state.arrivals]
        missing = [e for e in absent if e not in substitutes] if substitutes else absent
        self._require_feasible(state, experts, missing, substitutes)
        drawn_scores = scores() if missing and scores is not None else None
        leases = {e: self._lease_present(state, e, substitutes.get(e)) for e in experts if e not in missing}
        state.leases.extend(leases.values())
        self._count(state, experts, missing, substituted_mass)
        self._eviction.observe(state.layer, experts)
        self._slots.drop_unwanted(state, experts)
        while missing:
            for expert, slot in zip(missing, self._slots.find(state, len(missing), drawn_scores), strict=False):
                leases[expert] = lease = Lease(slot, self._transitions.submit(state, expert, slot, DEMAND))
                state.leases.append(lease)
            missing = [expert for expert in missing if expert not in leases]
            if missing:
                self._slots.reclaim(state.group, wait)
        return leases

    def _require_feasible(
        self, state: LayerState, experts: Sequence[int], missing: Sequence[int], substitutes: Mapping[int, int]
    ) -> None:
        stand_ins = [substitutes[expert] for expert in experts if expert in substitutes]
        if len(set(stand_ins)) < len(stand_ins) or any(state.slot_of[e] < 0 or e in experts for e in stand_ins):
            raise ValueError(f"substitutes must be resident, unselected and distinct: {dict(substitutes)}")
        if not missing:
            return
        held = state.group.locked_slots()
        for expert in (*stand_ins, *(expert for expert in experts if expert not in substitutes)):
            if state.slot_of[expert] >= 0:
                held.add(state.slot_of[expert])
            elif expert in state.arrivals:
                held.add(state.arrivals[expert].slot)
        if len(state.group.slots) - len(held) < len(missing):
            raise ValueError(f"layer {state.layer}: {len(missing)} experts to fetch and no slots left to lock for them")

    @staticmethod
    def _count(state: LayerState, experts: Sequence[int], missing: Sequence[int], substituted_mass: float) -> None:
        counters = state.counters
        counters.routed += len(experts)
        counters.substituted_mass += substituted_mass
        num_capacity = sum(state.seen[expert] for expert in missing)
        counters.capacity_misses += num_capacity
        counters.cold_misses += len(missing) - num_capacity

    def _lease_present(self, state: LayerState, expert: int, stand_in: int | None) -> Lease:
        """Count an expert that needs no new slot, and return the lease of the slot it, or its substitute, is in."""
        counters = state.counters
        if stand_in is not None:
            counters.substituted += 1
            self._transitions.use(state, stand_in)
            return self._transitions.lease_of_slot[state.slot_of[stand_in]]
        arrival = state.arrivals.get(expert)
        if arrival is not None:
            counters.late += 1
            if arrival.is_unjudged:
                arrival.is_unjudged = False
                counters.prefetch_late += 1
            return self._transitions.promote(arrival)
        if self._transitions.use(state, expert):
            counters.prefetched_hits += 1
        else:
            counters.resident_hits += 1
        return self._transitions.lease_of_slot[state.slot_of[expert]]
