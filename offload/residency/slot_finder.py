"""Chooses slots for experts to load: empty ones, then victims' (chosen by the eviction policy), then reclaimed ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from offload.errors import ExpertReadError
from offload.link.expert_link import ExpertCopy
from offload.policies.eviction import EvictionPolicy
from offload.residency.slot_state import GroupState, LayerState
from offload.residency.slot_transitions import SlotTransitions

if TYPE_CHECKING:
    import numpy as np


class SlotFinder:
    """Finds slots. Never one that is locked, nor one with a copy that has started."""

    def __init__(self, transitions: SlotTransitions, eviction: EvictionPolicy) -> None:
        self._transitions = transitions
        self._eviction = eviction

    def find(
        self, state: LayerState, num_slots: int, scores: np.ndarray | None, protected: Collection[int] = ()
    ) -> list[int]:
        """Up to `num_slots` slots: empty ones first, then those of the policy's victims. Changes nothing.

        `protected`: experts of the layer that must not be victims. The victims are ranked once for all slots.
        """
        group = state.group
        found = group.free[: -num_slots - 1 : -1]
        num_victims = num_slots - len(found)
        if not num_victims:
            return found
        held: set[tuple[int, int]] = {(state.layer, expert) for expert in protected}
        held.update(self.locked(group))
        layers = self._transitions.layers
        victims = self._eviction.victims(group.number, num_victims, held, scores, state.layer)
        return found + [layers[layer].slot_of[expert] for layer, expert in victims]

    def drop_unwanted(self, state: LayerState, experts: Sequence[int]) -> None:
        """Empty the slots of what the policy does not want to keep, now that the layer was routed to `experts`."""
        unwanted = self._eviction.unwanted(state.group.number, state.layer, experts)
        if unwanted:
            locked = self.locked(state.group)
            for name in unwanted:
                if name not in locked:
                    self._transitions.drop(*name)

    @staticmethod
    def locked(group: GroupState) -> set[tuple[int, int]]:
        """Residents, as (layer, expert), whose slots a running step has leased."""
        occupants = group.occupants
        return {occupants[slot] for slot in group.locked_slots() if slot in occupants}

    def reclaim(self, group: GroupState, wait: Callable[[ExpertCopy], object]) -> None:
        """Free a slot where `find` found none: cancel the last queued copy into an unlocked slot, or else wait for the
        first one on the link.

        The group must have an unlocked slot with a copy in flight. May change which experts are resident; `wait` may
        raise.
        """
        locked = group.locked_slots()
        unlocked = [arrival for arrival in group.arrivals.values() if arrival.slot not in locked]
        assert unlocked, "a step was let in without slots for it"
        if any(self._transitions.cancel(arrival) for arrival in reversed(unlocked)):
            return
        with suppress(ExpertReadError):
            wait(unlocked[0].copy)
        self._transitions.settle(group)
