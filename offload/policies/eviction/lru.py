"""Least recently used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload.geometry import Geometry
from offload.policies.eviction.lowest_ranked import lowest_ranked

if TYPE_CHECKING:
    import numpy as np


class LruEviction:
    """Evicts the expert whose last routed step is the longest ago; one never routed goes first."""

    def __init__(self, geometry: Geometry) -> None:
        self._step = 0
        self._last_step = [[0] * layer.num_experts for layer in geometry.layers]

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy."""
        self._step = step = self._step + 1
        last_step = self._last_step[layer]
        for expert in experts:
            last_step[expert] = step

    def victims(
        self, candidates: Sequence[tuple[int, int]], num_victims: int, scores: np.ndarray | None, layer: int
    ) -> list[int]:
        """See EvictionPolicy."""
        last_step = self._last_step
        return lowest_ranked([(last_step[at][expert], at, expert) for at, expert in candidates], num_victims)
