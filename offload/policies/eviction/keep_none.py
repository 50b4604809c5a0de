"""No cache: nothing stays beyond the step that picked it."""

from __future__ import annotations

from collections.abc import Sequence

from offload.policies.eviction.not_picked import NotPickedEviction


class KeepNoneEviction(NotPickedEviction):
    """Drops, once a layer's routing is known, everything but what that step has picked."""

    def unwanted(self, group: int, layer: int, experts: Sequence[int]) -> Sequence[tuple[int, int]]:
        """See EvictionPolicy."""
        picked = {(layer, expert) for expert in experts}
        return [name for name in self._last_to_come(group) if name not in picked]
