"""The transitions of a slot's state: submitted, landed, failed, cancelled, used. Layers and groups stay in step."""

from __future__ import annotations

from collections.abc import Sequence

from offload.geometry import Geometry
from offload.link.expert_link import DEMAND, PREFETCH, ExpertCopy, ExpertLink
from offload.link.lease import Lease
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import EvictionPolicy
from offload.residency.codes import HOST, LOADING, RESIDENT
from offload.residency.slot_state import Arrival, GroupState, LayerState, Occupant


class SlotTransitions:
    """Holds the state of all layers and groups, and is the only code that changes which expert is in which slot."""

    def __init__(
        self,
        geometry: Geometry,
        pool: SlotPool,
        link: ExpertLink,
        group_of_layer: Sequence[int],
        eviction: EvictionPolicy,
    ) -> None:
        """`eviction` is told who comes and who goes. Raises ValueError when a group is too small for a step of one of
        its layers."""
        if len(group_of_layer) != geometry.num_layers:
            raise ValueError(f"{len(group_of_layer)} groups given for {geometry.num_layers} layers")
        self.groups = [GroupState(group, pool.slots_of(group)) for group in range(pool.num_groups)]
        self.layers: list[LayerState] = []
        self.num_changes = 0
        """Of which expert is resident in which slot, monotonic."""
        self.lease_of_slot = [Lease(slot, None) for slot in range(pool.num_slots)]
        self._pool = pool
        self._link = link
        self._eviction = eviction
        self._expert_bytes = [shape.expert_bytes for shape in geometry.layers]
        for layer, (shape, group_number) in enumerate(zip(geometry.layers, group_of_layer, strict=True)):
            group = self.groups[group_number]
            if len(group.slots) < shape.top_k:
                raise ValueError(f"layer {layer} routes to {shape.top_k} experts and has {len(group.slots)} slots")
            if len(pool.memory(group.slots[0])) < shape.expert_bytes:
                raise ValueError(f"layer {layer} has experts of {shape.expert_bytes} bytes in smaller slots")
            self.layers.append(LayerState(layer, shape.num_experts, group))
            group.layers.append(self.layers[-1])

    def submit(
        self, state: LayerState, expert: int, slot: int, priority: int, *, is_for_prefill: bool = False
    ) -> ExpertCopy:
        """Queue an absent expert's copy into a slot that has none in flight; its occupant stops being resident."""
        num_bytes = self._expert_bytes[state.layer]
        copy = self._link.submit(state.layer, expert, self._pool.memory(slot)[:num_bytes], num_bytes, priority)
        group = state.group
        previous, is_previous_unused = group.occupants.pop(slot, None), False
        if previous is None:
            group.free.remove(slot)
        else:
            is_previous_unused = self._leave(previous)
        is_prefetch = priority == PREFETCH and not is_for_prefill
        arrival = Arrival(state.layer, expert, slot, copy, is_for_prefill, is_prefetch, previous, is_previous_unused)
        group.arrivals[slot] = state.arrivals[expert] = arrival
        state.codes[expert] = LOADING
        state.counters.prefetch_issued += is_prefetch
        return copy

    def drop(self, layer: int, expert: int) -> None:
        """Empty the slot of a resident expert; it must not be locked. Counted as an eviction."""
        state = self.layers[layer]
        slot = state.slot_of[expert]
        was_unused = self._leave(state.group.occupants.pop(slot))
        state.group.free.append(slot)
        state.counters.evictions += 1
        state.counters.prefetch_wasted += was_unused

    def _leave(self, occupant: Occupant) -> bool:
        """The expert is resident no more; whether it was a prefetch that was never used."""
        self.num_changes += 1
        left = self.layers[occupant.layer]
        was_unused = occupant.expert in left.unused
        left.unused.discard(occupant.expert)
        left.slot_of[occupant.expert] = -1
        left.hit_leases[occupant.expert] = None
        left.codes[occupant.expert] = HOST
        self._eviction.leave(left.group.number, occupant.layer, occupant.expert)
        return was_unused

    def promote(self, arrival: Arrival, *, is_for_prefill: bool = False) -> Lease:
        """Move an arrival's copy to the demand queue if it has not started; returns the lease to wait with."""
        if self._link.promote(arrival.copy):
            arrival.is_for_prefill = is_for_prefill
        return Lease(arrival.slot, arrival.copy)

    def settle(self, group: GroupState) -> None:
        """Take account of finished copies: the landed experts are resident, the failed leave their slot empty."""
        for arrival in [arrival for arrival in group.arrivals.values() if arrival.copy.is_done]:
            self._remove(arrival)
            self._count_eviction(arrival)
            if arrival.copy.error is None:
                self._land(arrival)
            else:
                group.free.append(arrival.slot)
                self.layers[arrival.layer].counters.prefetch_wasted += arrival.is_unjudged

    def cancel(self, arrival: Arrival) -> bool:
        """Cancel an arrival whose copy has not started; False if it has. The slot's bytes are intact: its previous
        occupant is resident again, unless it was submitted to another slot since."""
        if not self._link.cancel(arrival.copy):
            return False
        self._remove(arrival)
        self.layers[arrival.layer].counters.prefetch_cancelled += arrival.is_unjudged
        previous = arrival.previous
        if previous is not None and self.layers[previous.layer].codes[previous.expert] == HOST:
            self._occupy(previous, arrival.slot, arrival.is_previous_unused)
        else:
            self._count_eviction(arrival)
            self.layers[arrival.layer].group.free.append(arrival.slot)
        return True

    def use(self, state: LayerState, expert: int) -> bool:
        """Mark a resident expert as used. True: this is the first use of a prefetched one, counted as useful."""
        if expert not in state.unused:
            return False
        state.unused.remove(expert)
        state.hit_leases[expert] = self.lease_of_slot[state.slot_of[expert]]
        state.counters.prefetch_useful += 1
        return True

    def _land(self, arrival: Arrival) -> None:
        state = self.layers[arrival.layer]
        self._occupy(Occupant(arrival.layer, arrival.expert), arrival.slot, arrival.is_unjudged)
        state.seen[arrival.expert] = 1
        state.counters.bytes_loaded += arrival.copy.moved_bytes
        if arrival.is_for_prefill:
            state.counters.prefill_loads += 1
        elif arrival.copy.priority == DEMAND:
            state.counters.demand_loads += 1
        else:
            state.counters.prefetch_loads += 1

    def _occupy(self, occupant: Occupant, slot: int, is_unused: bool) -> None:
        self.num_changes += 1
        state = self.layers[occupant.layer]
        state.group.occupants[slot] = occupant
        state.slot_of[occupant.expert] = slot
        state.codes[occupant.expert] = RESIDENT
        self._eviction.enter(state.group.number, occupant.layer, occupant.expert)
        if is_unused:
            state.unused.add(occupant.expert)
        else:
            state.hit_leases[occupant.expert] = self.lease_of_slot[slot]

    def _remove(self, arrival: Arrival) -> None:
        state = self.layers[arrival.layer]
        del state.group.arrivals[arrival.slot], state.arrivals[arrival.expert]
        state.codes[arrival.expert] = HOST

    def _count_eviction(self, arrival: Arrival) -> None:
        """An eviction counts once the bytes are lost, not when a copy that may still be cancelled is queued."""
        if arrival.previous is not None:
            counters = self.layers[arrival.previous.layer].counters
            counters.evictions += 1
            counters.prefetch_wasted += arrival.is_previous_unused
