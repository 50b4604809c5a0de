"""The moves between the states of a slot: submitted, landed, failed, taken back, used. Each keeps all books in step."""

from __future__ import annotations

from collections.abc import Sequence

from offload.geometry import Geometry
from offload.link.link import DEMAND, PREFETCH, Copy, Lease, Link
from offload.link.slot_pool import SlotPool
from offload.residency.books import ARRIVING, HOST, RESIDENT, Arrival, GroupBook, LayerBook, Occupant


class Shelves:
    """The books of all layers and groups, and the only code that changes who is in which slot."""

    def __init__(self, geometry: Geometry, pool: SlotPool, link: Link, group_of_layer: Sequence[int]) -> None:
        """Raises ValueError when a group is too small for a step of one of its layers."""
        if len(group_of_layer) != geometry.num_layers:
            raise ValueError(f"{len(group_of_layer)} groups given for {geometry.num_layers} layers")
        self.groups = [GroupBook(pool.slots_of(group)) for group in range(pool.num_groups)]
        self.layers: list[LayerBook] = []
        self.lease_of_slot = [Lease(slot, None) for slot in range(pool.num_slots)]
        self._pool = pool
        self._link = link
        self._expert_bytes = [shape.expert_bytes for shape in geometry.layers]
        for layer, (shape, group_number) in enumerate(zip(geometry.layers, group_of_layer, strict=True)):
            group = self.groups[group_number]
            if len(group.slots) < shape.top_k:
                raise ValueError(f"layer {layer} routes to {shape.top_k} experts and has {len(group.slots)} slots")
            if len(pool.memory(group.slots[0])) < shape.expert_bytes:
                raise ValueError(f"layer {layer} has experts of {shape.expert_bytes} bytes in smaller slots")
            self.layers.append(LayerBook(layer, shape.num_experts, group))
            group.layers.append(self.layers[-1])

    def submit(self, book: LayerBook, expert: int, slot: int, priority: int) -> Copy:
        """Send an absent expert on its way into a slot that is not in flight; its occupant is evicted."""
        num_bytes = self._expert_bytes[book.layer]
        copy = self._link.submit(book.layer, expert, self._pool.memory(slot)[:num_bytes], num_bytes, priority)
        group = book.group
        previous, is_previous_unused = group.occupants.pop(slot, None), False
        if previous is None:
            group.free.remove(slot)
        else:
            left = self.layers[previous.layer]
            is_previous_unused = previous.expert in left.unused
            left.unused.discard(previous.expert)
            left.slot_of[previous.expert] = -1
            left.ready[previous.expert] = None
            left.codes[previous.expert] = HOST
        is_prefetch = priority == PREFETCH
        arrival = Arrival(book.layer, expert, slot, copy, is_prefetch, previous, is_previous_unused)
        group.arrivals[slot] = book.arrivals[expert] = arrival
        book.codes[expert] = ARRIVING
        book.tally.prefetch_issued += is_prefetch
        return copy

    def settle(self, group: GroupBook) -> None:
        """Enter finished copies into the books: the landed are resident, the failed leave their slot empty."""
        for arrival in [arrival for arrival in group.arrivals.values() if arrival.copy.is_done]:
            self._forget(arrival)
            self._count_eviction(arrival)
            if arrival.copy.error is None:
                self._land(arrival)
            else:
                group.free.append(arrival.slot)
                self.layers[arrival.layer].tally.prefetch_wasted += arrival.is_unjudged

    def cancel(self, arrival: Arrival) -> bool:
        """Take an arrival back if its copy has not started: the slot's bytes are intact, so its occupant returns."""
        if not self._link.cancel(arrival.copy):
            return False
        self._forget(arrival)
        self.layers[arrival.layer].tally.prefetch_cancelled += arrival.is_unjudged
        previous = arrival.previous
        if previous is not None and self.layers[previous.layer].codes[previous.expert] == HOST:
            self._occupy(previous, arrival.slot, arrival.is_previous_unused)
        else:
            self._count_eviction(arrival)
            self.layers[arrival.layer].group.free.append(arrival.slot)
        return True

    def use(self, book: LayerBook, expert: int) -> bool:
        """Note that a resident expert is used. True: it is the first use of a prefetched one, which proved useful."""
        if expert not in book.unused:
            return False
        book.unused.remove(expert)
        book.ready[expert] = self.lease_of_slot[book.slot_of[expert]]
        book.tally.prefetch_useful += 1
        return True

    def _land(self, arrival: Arrival) -> None:
        book = self.layers[arrival.layer]
        self._occupy(Occupant(arrival.layer, arrival.expert), arrival.slot, arrival.is_unjudged)
        book.seen[arrival.expert] = 1
        book.tally.bytes_loaded += arrival.copy.moved_bytes
        if arrival.copy.priority == DEMAND:
            book.tally.demand_loads += 1
        elif arrival.copy.priority == PREFETCH:
            book.tally.prefetch_loads += 1
        else:
            book.tally.prefill_loads += 1

    def _occupy(self, occupant: Occupant, slot: int, is_unused: bool) -> None:
        book = self.layers[occupant.layer]
        book.group.occupants[slot] = occupant
        book.slot_of[occupant.expert] = slot
        book.codes[occupant.expert] = RESIDENT
        if is_unused:
            book.unused.add(occupant.expert)
        else:
            book.ready[occupant.expert] = self.lease_of_slot[slot]

    def _forget(self, arrival: Arrival) -> None:
        book = self.layers[arrival.layer]
        del book.group.arrivals[arrival.slot], book.arrivals[arrival.expert]
        book.codes[arrival.expert] = HOST

    def _count_eviction(self, arrival: Arrival) -> None:
        """An eviction counts once the bytes are lost, not when a copy that may yet be taken back is queued."""
        if arrival.previous is not None:
            tally = self.layers[arrival.previous.layer].tally
            tally.evictions += 1
            tally.prefetch_wasted += arrival.is_previous_unused
