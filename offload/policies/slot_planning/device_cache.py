"""What kind of decode slots a configuration has, and how many of them a budget gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from offload.geometry import Geometry
from offload.policies.slot_planning.uniform import spread_uniform
from offload.slot_groups import SlotGroups


@dataclass(frozen=True, slots=True)
class DeviceCache:
    """The rule by which decode slots are shared out. With a fixed number, a larger budget gives no more."""

    is_pool: bool = False
    """One group of slots for all layers; else one for each."""
    is_nonuniform: bool = False
    """Slots are moved between layers by the model's profiles, where there are any. Not in a pool."""
    fixed_steps: int = 0
    """A pool of so many times the k of a token, whatever the budget. 0: not fixed in this way."""
    fixed_layers: int = 0
    """A pool of so many layers' experts, whatever the budget. 0: not fixed in this way."""

    @property
    def is_fixed(self) -> bool:
        """Whether the number of slots does not depend on the budget."""
        return bool(self.fixed_steps or self.fixed_layers)

    def fewest(self, geometry: Geometry) -> SlotGroups:
        """The fewest slots worth planning: one step's experts and one to prefetch into, for each group."""
        if self.is_fixed:
            return self._fixed(geometry)
        if self.is_pool:
            least = max((layer.min_slots for layer in geometry.layers), default=0)
            return SlotGroups.pool(least, geometry.num_layers)
        return SlotGroups.per_layer([layer.min_slots for layer in geometry.layers])

    def whole(self, geometry: Geometry) -> SlotGroups:
        """A slot for every expert, where the number is not fixed."""
        if self.is_fixed:
            return self._fixed(geometry)
        if self.is_pool:
            return SlotGroups.pool(geometry.num_experts_total, geometry.num_layers)
        return SlotGroups.per_layer([layer.num_experts for layer in geometry.layers])

    def of_share(self, geometry: Geometry, share: float) -> SlotGroups:
        """Slots for `share` of the experts, rounded; may be fewer than `fewest`."""
        if self.is_fixed:
            return self._fixed(geometry)
        if self.is_pool:
            return SlotGroups.pool(math.floor(share * geometry.num_experts_total + 0.5), geometry.num_layers)
        return SlotGroups.per_layer([math.floor(share * layer.num_experts + 0.5) for layer in geometry.layers])

    def spread(self, geometry: Geometry, spare_bytes: int) -> SlotGroups:
        """Slots when `spare_bytes` are left beyond the fewest."""
        fewest = self.fewest(geometry)
        if self.is_fixed:
            return fewest
        if self.is_pool:
            slot_bytes = max((layer.slot_bytes for layer in geometry.layers), default=1)
            num_slots = fewest.num_slots + spare_bytes // slot_bytes
            return SlotGroups.pool(min(num_slots, geometry.num_experts_total), geometry.num_layers)
        return SlotGroups.per_layer(spread_uniform(geometry, spare_bytes))

    def has_enough(self, geometry: Geometry, groups: SlotGroups) -> bool:
        """Whether every group has the fewest slots that are worth planning."""
        return all(n >= least for n, least in zip(groups.slots, self.fewest(geometry).slots, strict=True))

    def _fixed(self, geometry: Geometry) -> SlotGroups:
        top_k = max((layer.top_k for layer in geometry.layers), default=0)
        widest = max((layer.num_experts for layer in geometry.layers), default=0)
        num_slots = max(self.fixed_steps * top_k, self.fixed_layers * widest)
        return SlotGroups.pool(min(num_slots, geometry.num_experts_total), geometry.num_layers)


PER_LAYER = DeviceCache()
"""Slots of each layer's own, the same share in each."""

SLOT_PLANS: Final = {
    "nonuniform": DeviceCache(is_nonuniform=True),
    "uniform": PER_LAYER,
    "pool": DeviceCache(is_pool=True),
    "one-step": DeviceCache(is_pool=True, fixed_steps=1),
    "two-steps": DeviceCache(is_pool=True, fixed_steps=2),
    "two-layers": DeviceCache(is_pool=True, fixed_layers=2),
}
"""By the name that the configuration has for it."""
