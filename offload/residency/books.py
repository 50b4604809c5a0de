"""The books of the expert cache: who sits in which slot, what is on its way, and the running counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from offload.counters import Counters
from offload.link.link import Copy, Lease

HOST: Final = 0
RESIDENT: Final = 1
ARRIVING: Final = 2
IN_USE: Final = 3
SUBSTITUTE: Final = 4
"""Codes of `ExpertCache.residency_codes`, the numbers of `engine.events`."""


class Occupant(NamedTuple):
    """An expert in a slot."""

    layer: int
    expert: int


@dataclass(slots=True, eq=False)
class Arrival:
    """An expert on its way into a slot."""

    layer: int
    expert: int
    slot: int
    copy: Copy
    is_unjudged: bool
    """An issued prefetch of which is not known yet whether it was useful, late, wasted or cancelled."""
    previous: Occupant | None
    """Whose bytes the slot holds until the copy starts."""
    is_previous_unused: bool
    """`previous` was a landed prefetch that nobody has used."""


@dataclass(slots=True)
class Tally:
    """The mutable twin of Counters: the same fields."""

    routed: int = 0
    resident_hits: int = 0
    prefetched_hits: int = 0
    late: int = 0
    cold_misses: int = 0
    capacity_misses: int = 0
    substituted: int = 0
    substituted_mass: float = 0.0
    prefetch_issued: int = 0
    prefetch_useful: int = 0
    prefetch_late: int = 0
    prefetch_wasted: int = 0
    prefetch_cancelled: int = 0
    demand_loads: int = 0
    prefetch_loads: int = 0
    prefill_loads: int = 0
    bytes_loaded: int = 0
    evictions: int = 0

    def snapshot(self) -> Counters:
        """An immutable copy."""
        return Counters(*[getattr(self, name) for name in _COUNTER_NAMES])


_COUNTER_NAMES = tuple(field.name for field in fields(Counters))


class GroupBook:
    """One slot group."""

    __slots__ = ("arrivals", "free", "layers", "occupants", "slots")

    def __init__(self, slots: range) -> None:
        self.slots = slots
        self.layers: list[LayerBook] = []
        self.free = list(reversed(slots))
        """Empty slots, the next to be filled last."""
        self.occupants: dict[int, Occupant] = {}
        """Slot -> who is resident in it."""
        self.arrivals: dict[int, Arrival] = {}
        """Slot -> who is on its way into it, in the order of submission."""

    def locked_slots(self) -> set[int]:
        """Slots leased by a running step."""
        return {lease.slot for layer in self.layers for lease in layer.leases}


class LayerBook:
    """One layer."""

    __slots__ = ("arrivals", "codes", "group", "layer", "leases", "ready", "seen", "slot_of", "tally", "unused")

    def __init__(self, layer: int, num_experts: int, group: GroupBook) -> None:
        self.layer = layer
        self.group = group
        self.ready: list[Lease | None] = [None] * num_experts
        """The lease a hit gets without any bookkeeping; None for whoever is not resident, or an unused prefetch."""
        self.slot_of: list[int] = [-1] * num_experts
        """The slot an expert is resident in, or -1."""
        self.arrivals: dict[int, Arrival] = {}
        """Experts on their way."""
        self.unused: set[int] = set()
        """Resident experts that were prefetched and not used yet."""
        self.seen = bytearray(num_experts)
        """1: the expert was resident once."""
        self.codes = bytearray(num_experts)
        """HOST, RESIDENT or ARRIVING per expert."""
        self.leases: list[Lease] = []
        """What the running step holds: these slots are locked."""
        self.tally = Tally()
