"""Room for an expert: an empty slot, a victim's, or one won back from a copy in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from offload.errors import ExpertReadError
from offload.link.link import Copy
from offload.policies.eviction import EvictionPolicy
from offload.residency.books import GroupBook, LayerBook
from offload.residency.shelves import Shelves

if TYPE_CHECKING:
    import numpy as np


class Room:
    """Finds slots. Locked slots are never given away, nor those with a copy that has started."""

    def __init__(self, shelves: Shelves, eviction: EvictionPolicy) -> None:
        self._shelves = shelves
        self._eviction = eviction

    def find_slot(self, book: LayerBook, scores: np.ndarray | None, protected: Sequence[int]) -> int | None:
        """An empty slot, else the slot of the policy's victim, else None; changes nothing.

        `protected` experts of the layer are no victims.
        """
        group = book.group
        if group.free:
            return group.free[-1]
        taken = group.locked_slots()
        taken.update(book.slot_of[expert] for expert in protected)
        slots = [slot for slot in group.slots if slot in group.occupants and slot not in taken]
        if not slots:
            return None
        return slots[self._eviction.victim([group.occupants[slot] for slot in slots], scores, book.layer)]

    def take_slot(self, book: LayerBook, scores: np.ndarray | None, wait: Callable[[Copy], object]) -> int:
        """A slot for a miss, at any price: queued copies give theirs back, copies on the link are waited for.

        The group must have an unlocked slot. May change who is resident.
        """
        while (slot := self.find_slot(book, scores, ())) is None:
            self._win_back(book.group, wait)
        return slot

    def _win_back(self, group: GroupBook, wait: Callable[[Copy], object]) -> None:
        locked = group.locked_slots()
        unlocked = [arrival for arrival in group.arrivals.values() if arrival.slot not in locked]
        assert unlocked, "a step was let in without slots for it"
        if any(self._shelves.cancel(arrival) for arrival in reversed(unlocked)):
            return
        with suppress(ExpertReadError):
            wait(unlocked[0].copy)
        self._shelves.settle(group)
