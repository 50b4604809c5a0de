"""Least frequently used."""

from __future__ import annotations

from collections.abc import Sequence

from offload.geometry import Geometry
from offload.policies.eviction.ordered import OrderedEviction


class LfuEviction(OrderedEviction):
    """Evicts the expert routed to the fewest times since load; among equals, the least recently used."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self._step = 0
        self._count = [[0] * layer.num_experts for layer in geometry.layers]
        self._last_step = [[0] * layer.num_experts for layer in geometry.layers]

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy."""
        self._step = step = self._step + 1
        count, last_step = self._count[layer], self._last_step[layer]
        for expert in experts:
            count[expert] += 1
            last_step[expert] = step

    def rank(self, layer: int, expert: int) -> tuple[int, int]:
        """See OrderedEviction."""
        return self._count[layer][expert], self._last_step[layer][expert]
