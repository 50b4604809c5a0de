"""Slot groups: how many slots there are, and which layers share them. A group over several layers is counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload.geometry import Geometry, pool_bytes


@dataclass(frozen=True, slots=True)
class SlotGroups:
    """Decode slots in groups. Layer l uses the slots of group `group_of_layer[l]`, and no others."""

    slots: tuple[int, ...]
    """Per group."""
    group_of_layer: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raises ValueError when a layer has no group, or a group no layer."""
        if set(self.group_of_layer) != set(range(len(self.slots))):
            raise ValueError(f"layers of the groups {self.group_of_layer}, and {len(self.slots)} groups")

    @classmethod
    def per_layer(cls, slots: Sequence[int]) -> SlotGroups:
        """A group for each layer: `slots[l]`."""
        return cls(tuple(slots), tuple(range(len(slots))))

    @classmethod
    def pool(cls, num_slots: int, num_layers: int) -> SlotGroups:
        """One group for all layers."""
        return cls((num_slots,) if num_layers else (), (0,) * num_layers)

    @property
    def num_slots(self) -> int:
        """Over all groups."""
        return sum(self.slots)

    @property
    def is_per_layer(self) -> bool:
        """Whether no two layers share slots."""
        return len(self.slots) == len(self.group_of_layer)

    @property
    def shares(self) -> tuple[int, ...]:
        """Per layer, its share of its group's slots; they add up to the slots there are. Where no two layers share
        slots: the slots of each layer."""
        shares = [0] * len(self.group_of_layer)
        for group, num_slots in enumerate(self.slots):
            layers = self.layers_of(group)
            for place, layer in enumerate(layers):
                shares[layer] = num_slots // len(layers) + (place < num_slots % len(layers))
        return tuple(shares)

    def layers_of(self, group: int) -> list[int]:
        """The layers that use a group."""
        return [layer for layer, of in enumerate(self.group_of_layer) if of == group]

    def can_be_absent(self, geometry: Geometry) -> tuple[bool, ...]:
        """Per layer, whether its group has fewer slots than its layers have experts."""
        experts = [
            sum(geometry.layers[layer].num_experts for layer in self.layers_of(group))
            for group in range(len(self.slots))
        ]
        return tuple(self.slots[group] < experts[group] for group in self.group_of_layer)

    def slot_bytes(self, geometry: Geometry) -> tuple[int, ...]:
        """Per group, the bytes of a slot: those of the largest expert of its layers."""
        return tuple(
            max(geometry.layers[layer].expert_bytes for layer in self.layers_of(group))
            for group in range(len(self.slots))
        )

    def total_bytes(self, geometry: Geometry) -> int:
        """Bytes that a `SlotPool` of these groups allocates."""
        return pool_bytes(self.slots, self.slot_bytes(geometry))

    def in_words(self) -> str:
        """For a person: `8 slots a layer`, `3-5 slots a layer`, `384 slots in one pool`."""
        if self.is_per_layer:
            return f"{count_in_words(self.slots)} slots a layer"
        if len(self.slots) == 1:
            return f"{self.slots[0]} slots in one pool"
        return f"{self.num_slots} slots in {len(self.slots)} pools"


def count_in_words(slots: Sequence[int]) -> str:
    """Slots per layer for a person: `8`, or `3-5` where layers differ."""
    low, high = min(slots, default=0), max(slots, default=0)
    return str(low) if low == high else f"{low}-{high}"
