"""The same share of each layer's experts."""

from __future__ import annotations

from offload.geometry import Geometry


def spread_uniform(geometry: Geometry, spare_bytes: int) -> tuple[int, ...]:
    """Slots per layer when `spare_bytes` are left beyond the fewest (k + 1, or all experts) of every layer.

    The largest share of the experts that fits in every layer, then one slot more from layer 0 on, as far as the bytes
    go. Slots are counted in whole pages.
    """
    layers = geometry.layers

    def share(numerator: int) -> list[int]:
        """Each layer's slots at `numerator`/`most` of its experts."""
        return [max(layer.min_slots, layer.num_experts * numerator // most) for layer in layers]

    def extra_bytes(slots: list[int]) -> int:
        return sum((n - layer.min_slots) * layer.slot_bytes for n, layer in zip(slots, layers, strict=True))

    most = max((layer.num_experts for layer in layers), default=1)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if extra_bytes(share(middle)) <= spare_bytes else (low, middle - 1)
    slots = share(low)
    spare_bytes -= extra_bytes(slots)
    for index, layer in enumerate(layers):
        if slots[index] < layer.num_experts and layer.slot_bytes <= spare_bytes:
            slots[index] += 1
            spare_bytes -= layer.slot_bytes
    return tuple(slots)
