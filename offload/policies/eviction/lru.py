"""Least recently used."""

from __future__ import annotations

from collections.abc import Sequence

from offload.geometry import Geometry
from offload.policies.eviction.ordered import OrderedEviction


class LruEviction(OrderedEviction):
    """Evicts the expert whose last routed step is the longest ago; one never routed goes first."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self._step = 0
        self._last_step = [[0] * layer.num_experts for layer in geometry.layers]

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy."""
        self._step = step = self._step + 1
        last_step = self._last_step[layer]
        for expert in experts:
            last_step[expert] = step

    def rank(self, layer: int, expert: int) -> int:
        """See OrderedEviction."""
        return self._last_step[layer][expert]
