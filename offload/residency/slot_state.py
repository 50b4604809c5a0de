"""The state of the expert cache: per slot group and per layer, which expert is in which slot or on its way into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from offload.counters import Counters
from offload.link.expert_link import ExpertCopy
from offload.link.lease import Lease


class Occupant(NamedTuple):
    """An expert resident in a slot."""

    layer: int
    expert: int


@dataclass(slots=True, eq=False)
class Arrival:
    """An expert on its way into a slot."""

    layer: int
    expert: int
    slot: int
    copy: ExpertCopy
    is_for_prefill: bool
    """The load counts as one of prefill, as loads do that fill slots unasked; otherwise as a demand load or a prefetch
    load, by the copy's priority."""
    is_unjudged: bool
    """An issued prefetch that was not counted yet as useful, late, wasted or cancelled."""
    previous: Occupant | None
    """The expert whose bytes the slot holds until the copy starts."""
    is_previous_unused: bool
    """`previous` was a landed prefetch that was never used."""

    @property
    def is_prefetching(self) -> bool:
        """A prefetch that has neither landed nor been asked for."""
        return self.is_unjudged and not self.copy.is_done


class GroupState:
    """One slot group. Every slot is in exactly one of `free`, `occupants` and `arrivals`."""

    __slots__ = ("arrivals", "free", "layers", "number", "occupants", "slots")

    def __init__(self, number: int, slots: range) -> None:
        self.number = number
        self.slots = slots
        self.layers: list[LayerState] = []
        """The layers whose experts may be in these slots."""
        self.free = list(reversed(slots))
        """Empty slots; the last one is filled next."""
        self.occupants: dict[int, Occupant] = {}
        """Slot -> the expert resident in it."""
        self.arrivals: dict[int, Arrival] = {}
        """Slot -> the expert on its way into it, in the order of submission."""

    def locked_slots(self) -> set[int]:
        """Slots leased by a running step."""
        return {lease.slot for layer in self.layers for lease in layer.leases}


class LayerState:
    """One layer."""

    __slots__ = ("arrivals", "codes", "counters", "group", "hit_leases", "layer", "leases", "seen", "slot_of", "unused")

    def __init__(self, layer: int, num_experts: int, group: GroupState) -> None:
        self.layer = layer
        self.group = group
        self.hit_leases: list[Lease | None] = [None] * num_experts
        """Per expert, the lease of a hit that changes nothing but counters; None: absent, or an unused prefetch."""
        self.slot_of: list[int] = [-1] * num_experts
        """The slot an expert is resident in, or -1."""
        self.arrivals: dict[int, Arrival] = {}
        """By expert."""
        self.unused: set[int] = set()
        """Resident experts that were prefetched and not used yet."""
        self.seen = bytearray(num_experts)
        """1: the expert was resident once."""
        self.codes = bytearray(num_experts)
        """HOST, RESIDENT or LOADING per expert."""
        self.leases: list[Lease] = []
        """The leases of the running step: their slots are locked."""
        self.counters = Counters()
