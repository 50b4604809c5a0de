"""Least recently used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload.geometry import Geometry

if TYPE_CHECKING:
    import numpy as np


class LruEviction:
    """Evicts the expert whose last routed step is the longest ago; one never routed goes first."""

    def __init__(self, geometry: Geometry) -> None:
        self._step = 0
        self._last_step = [[0] * layer.num_experts for layer in geometry.layers]

    def observe(self, layer: int, experts: Sequence[int], scores: np.ndarray | None) -> None:
        """See EvictionPolicy."""
        self._step = step = self._step + 1
        last_step = self._last_step[layer]
        for expert in experts:
            last_step[expert] = step

    def victim(self, candidates: Sequence[tuple[int, int]], scores: np.ndarray | None, layer: int) -> int:
        """See EvictionPolicy."""
        last_step = self._last_step
        ranks = [(last_step[of_layer][expert], of_layer, expert) for of_layer, expert in candidates]
        return ranks.index(min(ranks))
