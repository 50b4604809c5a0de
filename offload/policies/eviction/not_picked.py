"""Keeps what the running step has picked and what was fetched for the layers to come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from offload.geometry import Geometry

if TYPE_CHECKING:
    import numpy as np


class NotPickedEviction:
    """Drops at once what a layer's gate did not pick; then evicts the layer whose turn comes round last.

    After "DuoServe-MoE: Dual-Phase Expert Prefetch", section "Mechanism": the cache holds one step's experts, and those
    fetched for the next layer. Among experts of a layer the lowest number goes first.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._num_layers = geometry.num_layers
        self._running = 0
        self._residents: dict[int, list[set[int]]] = {}
        """Per group, by layer."""

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy."""
        self._running = layer

    def enter(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        if group not in self._residents:
            self._residents[group] = [set() for _ in range(self._num_layers)]
        self._residents[group][layer].add(expert)

    def leave(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        self._residents[group][layer].discard(expert)

    def unwanted(self, group: int, layer: int, experts: Sequence[int]) -> Sequence[tuple[int, int]]:
        """See EvictionPolicy."""
        own = self._residents.get(group)
        return [(layer, expert) for expert in sorted(own[layer].difference(experts))] if own else ()

    def victims(
        self,
        group: int,
        num_victims: int,
        held: Collection[tuple[int, int]],
        scores: np.ndarray | None,
        layer: int,
    ) -> list[tuple[int, int]]:
        """See EvictionPolicy."""
        free = (name for name in self._last_to_come(group) if name not in held)
        return [name for _, name in zip(range(num_victims), free, strict=False)]

    def _last_to_come(self, group: int) -> Iterator[tuple[int, int]]:
        own = self._residents.get(group, ())
        for back in range(len(own)):
            layer = (self._running - back) % self._num_layers
            yield from ((layer, expert) for expert in sorted(own[layer]))
