"""The expert cache: which experts sit on the device, what is on its way, and what must not be touched now.

Only the engine's thread calls this. The link's threads complete copies and nothing else: what has landed enters the
books when the engine's thread settles them, at the start of the next call that changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, cast

from offload.geometry import Geometry
from offload.link.link import DEMAND, PREFETCH, PREFILL, Copy, Lease, Link
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import EvictionPolicy
from offload.residency.books import ARRIVING, HOST, IN_USE, RESIDENT, SUBSTITUTE, LayerBook
from offload.residency.cache_view import CacheView
from offload.residency.room import Room
from offload.residency.shelves import Shelves

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ARRIVING", "HOST", "IN_USE", "RESIDENT", "SUBSTITUTE", "ExpertCache", "Lease"]


class ExpertCache(CacheView):
    """Residency of all MoE layers. `layer` is a MoE-layer index, an expert is known by its number in the layer.

    A slot is empty, holds a resident expert, or has one arriving. The slots of a running step are locked from `acquire`
    (or `lock_resident`, `claim_free`) to `release`; locked slots and slots with a copy in flight are never evicted.
    """

    def __init__(
        self,
        geometry: Geometry,
        pool: SlotPool,
        link: Link,
        eviction: EvictionPolicy,
        group_of_layer: Sequence[int] | None = None,
    ) -> None:
        """`group_of_layer[l]` is the pool's slot group of layer l; by default each layer has its own.

        Raises ValueError when the pool does not fit the geometry: too few slots for one step, or too small ones.
        """
        groups = range(geometry.num_layers) if group_of_layer is None else group_of_layer
        super().__init__(Shelves(geometry, pool, link, groups))
        self._room = Room(self._shelves, eviction)
        self._link = link
        self._eviction = eviction

    # ---- decode

    def acquire(
        self,
        layer: int,
        experts: Sequence[int],
        scores: Callable[[], np.ndarray | None] | None = None,
        substitutes: Mapping[int, int] | None = None,
        substituted_mass: float = 0.0,
        wait: Callable[[Copy], object] = methodcaller("wait"),
    ) -> list[Lease]:
        """Begin one decode step of a layer: one lease per expert of `experts` (distinct), in their order.

        Counts every expert, locks its slot until `release`, submits what is missing at demand priority and promotes
        what is on its way. Queued prefetches of this layer that turn out wrong are cancelled first. `scores()`
        [num_experts] is called only if a victim may have to be chosen. `substitutes` maps missed experts to resident,
        unselected ones whose slot is leased in their place, carrying `substituted_mass` of routing weight in all; the
        missed ones are then fetched at prefetch priority if a slot can be had. The mapping is honoured even for an
        expert that has landed meanwhile. `wait(copy)` is called when every slot is in flight, and what it raises is
        passed on, with the step counted and `release` the way out. Raises ValueError, with nothing counted or locked,
        when the group has too few slots for the step or a substitute is not resident.
        """
        book = self._layers[layer]
        if book.group.arrivals:
            self._shelves.settle(book.group)
            self._cancel_wrong_prefetches(book, experts)
        if not substitutes:
            ready = book.ready
            leases = [ready[expert] for expert in experts]
            if all(leases):
                hits = cast(list[Lease], leases)
                book.leases += hits
                tally = book.tally
                tally.routed += len(hits)
                tally.resident_hits += len(hits)
                self._eviction.observe(layer, experts, None)
                return hits
        return self._acquire_with_misses(book, experts, scores, substitutes or {}, substituted_mass, wait)

    def release(self, layer: int) -> None:
        """End the layer's step: unlock its slots and settle what has landed.

        Also the way out after WaitCancelled or ExpertReadError: a copy the step asked for that has not started is taken
        back, and a failed one leaves its slot empty and its expert on the host.
        """
        book = self._layers[layer]
        book.leases.clear()
        if book.group.arrivals:
            self._shelves.settle(book.group)
            for arrival in list(book.arrivals.values()):
                if arrival.copy.priority != PREFETCH:
                    self._shelves.cancel(arrival)

    def prefetch(self, layer: int, experts: Sequence[int], expected: Sequence[int] = ()) -> int:
        """Submit the absent ones of `experts` at prefetch priority, in order, and return how many were submitted.

        Evicts neither what is locked or in flight nor any of `experts` or of those `expected` to be asked for next;
        stops when no slot can be had.
        """
        book = self._layers[layer]
        if book.group.arrivals:
            self._shelves.settle(book.group)
        submitted, protected = 0, (*experts, *expected)
        for expert in experts:
            if book.slot_of[expert] >= 0 or expert in book.arrivals:
                continue
            slot = self._room.find_slot(book, None, protected)
            if slot is None:
                break
            self._shelves.submit(book, expert, slot, PREFETCH)
            submitted += 1
        return submitted

    def settle(self, layer: int) -> None:
        """Enter what has landed for this layer into the books, so that the questions below see it."""
        self._shelves.settle(self._layers[layer].group)

    # ---- prefill

    def lock_resident(self, layer: int, experts: Sequence[int]) -> dict[int, int]:
        """Lock the resident ones of `experts` until `release`, and return their slots. Counts nothing."""
        book = self._layers[layer]
        self._shelves.settle(book.group)
        slots = {expert: book.slot_of[expert] for expert in experts if book.slot_of[expert] >= 0}
        book.leases += [self._shelves.lease_of_slot[slot] for slot in slots.values()]
        return slots

    def claim_free(self, layer: int, expert: int) -> Lease | None:
        """Fetch an expert into an empty slot at PREFILL priority and lock it until `release`; never evicts.

        An expert that is resident or on its way is leased as it is. None: it is absent and no slot is empty.
        """
        book = self._layers[layer]
        self._shelves.settle(book.group)
        if book.slot_of[expert] >= 0:
            lease = self._shelves.lease_of_slot[book.slot_of[expert]]
        elif (arrival := book.arrivals.get(expert)) is not None:
            self._link.promote(arrival.copy, PREFILL)
            lease = Lease(arrival.slot, arrival.copy)
        elif book.group.free:
            slot = book.group.free[-1]
            lease = Lease(slot, self._shelves.submit(book, expert, slot, PREFILL))
        else:
            return None
        book.leases.append(lease)
        return lease

    def warm(self, layer: int, experts: Sequence[int]) -> list[Copy]:
        """Make `experts` (at most as many as the layer has slots) resident in place of others; between steps only.

        Submits the absent ones at PREFILL priority and returns their copies, for the caller to wait for; what is
        resident of them stays, and so does what is in flight. Counts loads and evictions, nothing else.
        """
        book = self._layers[layer]
        self._shelves.settle(book.group)
        copies: list[Copy] = []
        for expert in experts:
            if book.slot_of[expert] >= 0 or expert in book.arrivals:
                continue
            slot = self._room.find_slot(book, None, experts)
            if slot is None:
                break
            copies.append(self._shelves.submit(book, expert, slot, PREFILL))
        return copies

    def count_staged(self, landed: Iterable[Copy]) -> None:
        """Count copies that prefill has moved to staging memory."""
        for copy in landed:
            tally = self._layers[copy.layer].tally
            tally.prefill_loads += 1
            tally.bytes_loaded += copy.moved_bytes

    # ---- the slow half of acquire

    def _acquire_with_misses(
        self,
        book: LayerBook,
        experts: Sequence[int],
        scores: Callable[[], np.ndarray | None] | None,
        substitutes: Mapping[int, int],
        substituted_mass: float,
        wait: Callable[[Copy], object],
    ) -> list[Lease]:
        missing = [e for e in experts if book.slot_of[e] < 0 and e not in book.arrivals and e not in substitutes]
        self._require_feasible(book, experts, missing, substitutes)
        drawn_scores = scores() if missing and scores is not None else None
        leases = {e: self._meet(book, e, substitutes.get(e)) for e in experts if e not in missing}
        book.leases.extend(leases.values())
        book.tally.routed += len(experts)
        book.tally.substituted_mass += substituted_mass
        self._eviction.observe(book.layer, experts, drawn_scores)
        num_capacity = sum(book.seen[expert] for expert in missing)
        book.tally.capacity_misses += num_capacity
        book.tally.cold_misses += len(missing) - num_capacity
        for expert in missing:
            slot = self._room.take_slot(book, drawn_scores, wait)
            leases[expert] = lease = Lease(slot, self._shelves.submit(book, expert, slot, DEMAND))
            book.leases.append(lease)
        if substitutes:
            self.prefetch(book.layer, [e for e in experts if e in substitutes])
        return [leases[expert] for expert in experts]

    def _require_feasible(
        self, book: LayerBook, experts: Sequence[int], missing: Sequence[int], substitutes: Mapping[int, int]
    ) -> None:
        stand_ins = [substitutes[expert] for expert in experts if expert in substitutes]
        if len(set(stand_ins)) < len(stand_ins) or any(book.slot_of[e] < 0 or e in experts for e in stand_ins):
            raise ValueError(f"substitutes must be resident, unselected and distinct: {dict(substitutes)}")
        if not missing:
            return
        met = [*stand_ins, *(expert for expert in experts if expert not in substitutes)]
        held = book.group.locked_slots()
        held.update(book.slot_of[expert] for expert in met if book.slot_of[expert] >= 0)
        held.update(book.arrivals[expert].slot for expert in met if expert in book.arrivals)
        if len(book.group.slots) - len(held) < len(missing):
            raise ValueError(f"layer {book.layer}: {len(missing)} experts to fetch and no slots left to lock for them")

    def _meet(self, book: LayerBook, expert: int, stand_in: int | None) -> Lease:
        """Count an expert that needs no new slot, and lease the slot it, or its substitute, is in."""
        tally = book.tally
        if stand_in is not None:
            tally.substituted += 1
            self._shelves.use(book, stand_in)
            return self._shelves.lease_of_slot[book.slot_of[stand_in]]
        arrival = book.arrivals.get(expert)
        if arrival is not None:
            tally.late += 1
            if arrival.is_unjudged:
                arrival.is_unjudged = False
                tally.prefetch_late += 1
            self._link.promote(arrival.copy)
            return Lease(arrival.slot, arrival.copy)
        if self._shelves.use(book, expert):
            tally.prefetched_hits += 1
        else:
            tally.resident_hits += 1
        return self._shelves.lease_of_slot[book.slot_of[expert]]

    def _cancel_wrong_prefetches(self, book: LayerBook, experts: Sequence[int]) -> None:
        for arrival in list(book.arrivals.values()):
            if arrival.copy.priority == PREFETCH and arrival.expert not in experts:
                self._shelves.cancel(arrival)
