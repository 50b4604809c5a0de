"""The expert cache: which experts are on the device, which are on their way, and which slots are locked.

Only the engine's thread calls this. The link's threads complete copies and do nothing else: a landed expert becomes
resident when the engine's thread settles its group, at the start of the next call that changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, cast

from offload.counters import Counters
from offload.geometry import Geometry
from offload.link.expert_link import DEMAND, PREFETCH, ExpertCopy, ExpertLink
from offload.link.lease import Lease
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import EvictionPolicy
from offload.residency.integrity import check_slot_state
from offload.residency.slot_finder import SlotFinder
from offload.residency.slot_state import LayerState
from offload.residency.slot_transitions import SlotTransitions
from offload.residency.step_admission import StepAdmission
from offload.slot_groups import SlotGroups

if TYPE_CHECKING:
    import numpy as np


class ExpertCache:
    """Residency of all MoE layers. `layer` is a MoE-layer index, an expert is known by its number in the layer.

    A slot is empty, holds a resident expert, or has one arriving. The slots of a running step are locked from `acquire`
    (or `lock_resident`, `claim_free`) to `release`; locked slots and slots with a started copy are never evicted.
    """

    def __init__(
        self,
        geometry: Geometry,
        pool: SlotPool,
        link: ExpertLink,
        eviction: EvictionPolicy,
        group_of_layer: Sequence[int] | None = None,
    ) -> None:
        """`group_of_layer[l]` is the pool's slot group of layer l; by default each layer has its own.

        Raises ValueError when the pool does not fit the geometry: too few slots for one step, or too small ones.
        """
        groups = range(geometry.num_layers) if group_of_layer is None else group_of_layer
        self._transitions = SlotTransitions(geometry, pool, link, groups, eviction)
        self._layers = self._transitions.layers
        self._slots = SlotFinder(self._transitions, eviction)
        self._admission = StepAdmission(self._transitions, self._slots, eviction)
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
        wait: Callable[[ExpertCopy], object] = methodcaller("wait"),
    ) -> list[Lease]:
        """Begin one decode step of a layer: one lease per place of `experts`, in their order.

        An expert named twice is counted, observed and locked once; both places get its lease. Locks slots until
        `release`, submits what is missing at demand priority and promotes what is on its way; queued prefetches of this
        layer that turn out wrong are cancelled first. `scores()` [num_experts] is called only if a victim may have to
        be chosen. `substitutes` maps missed experts, also such as have landed meanwhile, to resident, unselected ones
        leased in their place, with `substituted_mass` of routing weight in all; the missed ones are fetched at prefetch
        priority if a slot can be had. `wait(copy)` is called when every slot is in flight; what it raises is passed on,
        with the step counted and `release` the way out. Raises ValueError, with nothing counted or locked, when the
        group has too few slots for the step or a substitute is not resident.
        """
        state = self._layers[layer]
        if state.group.arrivals:
            self._transitions.settle(state.group)
            self._cancel_queued(state, experts)
        distinct = experts if len(set(experts)) == len(experts) else list(dict.fromkeys(experts))
        if not substitutes:
            hit_leases = state.hit_leases
            leases = [hit_leases[expert] for expert in distinct]
            if all(leases):
                hits = cast(list[Lease], leases)
                state.leases += hits
                state.counters.routed += len(hits)
                state.counters.resident_hits += len(hits)
                self._eviction.observe(layer, distinct)
                self._slots.drop_unwanted(state, distinct)
                return hits if distinct is experts else [cast(Lease, hit_leases[expert]) for expert in experts]
        lease_of = self._admission.admit(state, distinct, scores, substitutes or {}, substituted_mass, wait)
        if substitutes:
            self.prefetch(layer, [expert for expert in distinct if expert in substitutes])
        return [lease_of[expert] for expert in experts]

    def release(self, layer: int) -> None:
        """End the layer's step: unlock its slots and settle what has landed. Also the way out after WaitCancelled or
        ExpertReadError: a copy the step asked for that has not started is cancelled, and a failed one leaves its slot
        empty and its expert on the host."""
        state = self._layers[layer]
        state.leases.clear()
        if state.group.arrivals:
            self._transitions.settle(state.group)
            for arrival in list(state.arrivals.values()):
                if arrival.copy.priority == DEMAND:
                    self._transitions.cancel(arrival)

    def prefetch(self, layer: int, experts: Sequence[int], expected: Sequence[int] = ()) -> int:
        """Submit the absent of `experts` at prefetch priority, in order, and return how many were submitted. Evicts
        neither what is locked or in flight nor any of `experts` or of those `expected` to be asked for next; stops when
        no slot can be had. Where some are expected, queued prefetches of others are cancelled first."""
        state = self._layers[layer]
        if state.group.arrivals:
            self._transitions.settle(state.group)
            if expected:
                self._cancel_queued(state, (*experts, *expected))
        return len(self._load(state, experts, (*experts, *expected), PREFETCH)) if experts else 0

    def settle(self, layer: int) -> None:
        """Take account of what has landed for this layer, so that the questions below see it."""
        self._transitions.settle(self._layers[layer].group)

    def _cancel_queued(self, state: LayerState, kept: Collection[int] = (), *, is_filling: bool = False) -> None:
        """Take back the layer's prefetches, or what `fill` submitted, that the link has not begun, but for `kept`."""
        for arrival in list(state.arrivals.values()):
            is_of_kind = arrival.copy.priority == PREFETCH and arrival.is_for_prefill == is_filling
            if is_of_kind and arrival.expert not in kept:
                self._transitions.cancel(arrival)

    def _load(
        self, state: LayerState, experts: Sequence[int], protected: Collection[int], priority: int
    ) -> list[ExpertCopy]:
        """Submit the absent ones of `experts`, as far as slots can be had; `protected` experts stay. At PREFETCH they
        are prefetches; at DEMAND they count as loads of prefill, since no decode step asks for them."""
        absent = [e for e in dict.fromkeys(experts) if state.slot_of[e] < 0 and e not in state.arrivals]
        if not absent:
            return []
        pairs = zip(absent, self._slots.find(state, len(absent), None, protected), strict=False)
        is_for_prefill = priority == DEMAND
        submit = self._transitions.submit
        return [submit(state, expert, slot, priority, is_for_prefill=is_for_prefill) for expert, slot in pairs]

    # ---- prefill

    def lock_resident(self, layer: int, experts: Sequence[int]) -> dict[int, int]:
        """Lock the resident ones of `experts` until `release`, and return their slots. Counts nothing."""
        state = self._layers[layer]
        self._transitions.settle(state.group)
        slots = {expert: state.slot_of[expert] for expert in experts if state.slot_of[expert] >= 0}
        state.leases += [self._transitions.lease_of_slot[slot] for slot in slots.values()]
        return slots

    def claim_free(self, layer: int, expert: int) -> Lease | None:
        """Fetch an expert into an empty slot for prefill, locked until `release`; never evicts. What is resident or on
        its way is leased as it is. None: it is absent and no slot is empty."""
        state = self._layers[layer]
        self._transitions.settle(state.group)
        if state.slot_of[expert] >= 0:
            lease = self._transitions.lease_of_slot[state.slot_of[expert]]
        elif (arrival := state.arrivals.get(expert)) is not None:
            lease = self._transitions.promote(arrival, is_for_prefill=True)
        elif state.group.free:
            slot = state.group.free[-1]
            lease = Lease(slot, self._transitions.submit(state, expert, slot, DEMAND, is_for_prefill=True))
        else:
            return None
        state.leases.append(lease)
        return lease

    def warm(self, layer: int, experts: Sequence[int]) -> list[ExpertCopy]:
        """Make `experts` (at most as many as the layer has slots) resident in place of others; between steps only.
        Submits the absent ones and returns their copies, for the caller to wait for; what is resident of them stays,
        and so does what is in flight. Counts loads of prefill and evictions, nothing else."""
        state = self._layers[layer]
        self._transitions.settle(state.group)
        return self._load(state, experts, experts, DEMAND)

    def fill(self, layer: int) -> None:
        """Submit the layer's absent experts into empty slots, behind what steps ask for; counts as `warm` does."""
        state = self._layers[layer]
        self._transitions.settle(state.group)
        for expert in self.absent(layer)[: len(state.group.free)]:
            self._transitions.submit(state, expert, state.group.free[-1], PREFETCH, is_for_prefill=True)

    def stop_filling(self, layer: int) -> None:
        """Take back what `fill` submitted and the link has not begun."""
        self._cancel_queued(self._layers[layer], is_filling=True)

    def drop_unwanted(self) -> None:
        """A prompt is computed: empty the slots of what the eviction policy does not keep of it. Between steps only."""
        for state in self._layers:
            self._transitions.settle(state.group)
            self._slots.drop_unwanted(state, ())

    def count_staged(self, landed: Iterable[ExpertCopy]) -> None:
        """Count copies that prefill has moved to staging memory."""
        for copy in landed:
            counters = self._layers[copy.layer].counters
            counters.prefill_loads += 1
            counters.bytes_loaded += copy.moved_bytes

    # ---- questions: the state as it was last settled; they change nothing

    def num_empty_slots(self, layer: int) -> int:
        """Slots of the layer's group that neither hold an expert nor await one."""
        return len(self._layers[layer].group.free)

    def slot_of(self, layer: int, expert: int) -> int | None:
        """The slot a resident expert is in, else None."""
        slot = self._layers[layer].slot_of[expert]
        return slot if slot >= 0 else None

    def slots_of_residents(self, layer: int) -> Sequence[int]:
        """Per expert the slot that it is resident in, or -1. Not to be changed."""
        return self._layers[layer].slot_of

    @property
    def num_changes(self) -> int:
        """How often an expert has become resident, or ceased to be."""
        return self._transitions.num_changes

    def is_resident(self, layer: int, expert: int) -> bool:
        """Whether the expert is on the device."""
        return self._layers[layer].slot_of[expert] >= 0

    def is_absent(self, layer: int, expert: int) -> bool:
        """Whether the expert is neither on the device nor on its way."""
        return self._layers[layer].slot_of[expert] < 0 and expert not in self._layers[layer].arrivals

    def absent(self, layer: int) -> list[int]:
        """The layer's experts that are neither on the device nor on their way, in order."""
        return [expert for expert in range(len(self._layers[layer].slot_of)) if self.is_absent(layer, expert)]

    def holds_all(self, layer: int) -> bool:
        """Whether the layer's group has a slot for every expert of its layers."""
        group = self._layers[layer].group
        return len(group.slots) >= sum(len(other.slot_of) for other in group.layers)

    def copy_of(self, layer: int, expert: int) -> ExpertCopy | None:
        """The copy of an expert on its way, else None."""
        arrival = self._layers[layer].arrivals.get(expert)
        return arrival.copy if arrival is not None else None

    def eta_s(self, layer: int, expert: int) -> float | None:
        """Seconds until an expert on its way lands if a step asks for it now: a queued prefetch would be promoted. None
        when it is not on its way, or before a bandwidth is known."""
        copy = self.copy_of(layer, expert)
        return self._link.demand_eta_s(copy) if copy is not None else None

    def residents(self) -> tuple[tuple[int, ...], ...]:
        """Per layer, the experts on the device, in order."""
        return tuple(tuple(expert for expert, slot in enumerate(state.slot_of) if slot >= 0) for state in self._layers)

    def num_loading(self, layer: int) -> int:
        """Experts of the layer on their way."""
        return len(self._layers[layer].arrivals)

    def num_prefetching(self) -> int:
        """Prefetches on their way, of all layers."""
        return sum(arrival.is_prefetching for group in self._transitions.groups for arrival in group.arrivals.values())

    @property
    def slot_groups(self) -> SlotGroups:
        """How many slots there are, and which layers share them."""
        groups = self._transitions.groups
        return SlotGroups(
            tuple(len(group.slots) for group in groups), tuple(state.group.number for state in self._layers)
        )

    @property
    def slots_per_layer(self) -> tuple[int, ...]:
        """Each layer's share of the slots; they add up to the slots there are."""
        return self.slot_groups.shares

    def slots_of_layer(self, layer: int) -> range:
        """The numbers of the slots that the layer's experts may be in."""
        return self._layers[layer].group.slots

    def counters(self, layer: int) -> Counters:
        """What was counted in a layer since load: a copy."""
        return self._layers[layer].counters.snapshot()

    def total_counters(self) -> Counters:
        """What was counted since load, over all layers."""
        return Counters.total(state.counters for state in self._layers)

    def residency_codes(self, layer: int) -> bytes:
        """One residency code per expert."""
        return bytes(self._layers[layer].codes)

    def check_integrity(self) -> None:
        """Raise AssertionError, saying what is wrong, unless slots, states, locks and counts agree."""
        check_slot_state(self._transitions.groups)
