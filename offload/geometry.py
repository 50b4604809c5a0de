"""The shape of a model's routed experts: layers, experts, bytes. In this package `layer` is a MoE-layer index."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_BYTES = 4096
"""Slots start at multiples of this, so that a direct (uncached) read can land in them."""


def page_aligned_bytes(num_bytes: int) -> int:
    """`num_bytes` rounded up to whole pages of 4096 bytes."""
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


def pool_bytes(group_slots: tuple[int, ...], group_slot_bytes: tuple[int, ...]) -> int:
    """Bytes a `SlotPool` of this shape allocates: slots of whole pages, and one page to align the first."""
    slots_bytes = sum(n * page_aligned_bytes(b) for n, b in zip(group_slots, group_slot_bytes, strict=True))
    return slots_bytes + PAGE_BYTES if slots_bytes else 0


def layer_buffer_bytes(geometry: Geometry) -> int:
    """Bytes that hold all experts of any one MoE layer, each from a page boundary on."""
    return max((layer.num_experts * layer.slot_bytes for layer in geometry.layers), default=0)


def layer_staging_bytes(geometry: Geometry) -> int:
    """Bytes a `LayerStaging` allocates: two such buffers."""
    return pool_bytes((2,), (layer_buffer_bytes(geometry),))


@dataclass(frozen=True, slots=True)
class LayerGeometry:
    """One MoE layer."""

    layer_number: int
    """The decoder layer's own number in the model (dense layers count too)."""
    num_experts: int
    """Routed experts."""
    top_k: int
    """Experts the router picks per token."""
    expert_bytes: int
    """Bytes of one slot, as padded by the storage format."""

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.num_experts or self.expert_bytes < 1:
            raise ValueError(f"impossible MoE layer: {self}")

    @property
    def min_slots(self) -> int:
        """The fewest slots worth planning: one step's experts and one to prefetch into."""
        return min(self.top_k + 1, self.num_experts)

    @property
    def slot_bytes(self) -> int:
        """Bytes one slot really takes: whole pages."""
        return page_aligned_bytes(self.expert_bytes)


@dataclass(frozen=True, slots=True)
class Geometry:
    """All MoE layers, in order. Position in `layers` is what the whole package calls `layer`."""

    layers: tuple[LayerGeometry, ...]

    def routes_like(self, other: Geometry) -> bool:
        """Whether routing recorded with one means something for the other: the same layers, experts and k. Bytes do not
        count."""
        return self._routing() == other._routing()

    def _routing(self) -> list[tuple[int, int, int]]:
        return [(layer.layer_number, layer.num_experts, layer.top_k) for layer in self.layers]

    @property
    def num_layers(self) -> int:
        """MoE layers."""
        return len(self.layers)

    @property
    def num_experts_total(self) -> int:
        """Routed experts over all layers."""
        return sum(layer.num_experts for layer in self.layers)

    @property
    def largest_expert_bytes(self) -> int:
        """Bytes of the largest expert of any layer; 0 without layers."""
        return max((layer.expert_bytes for layer in self.layers), default=0)

    @property
    def expert_bytes_total(self) -> int:
        """Bytes of all routed experts, without page padding."""
        return sum(layer.num_experts * layer.expert_bytes for layer in self.layers)
