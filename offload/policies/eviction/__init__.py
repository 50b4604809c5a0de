"""Eviction policies choose a slot's victim: one per file. Pure: no tensors, no I/O, no clock."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

    from offload.geometry import Geometry
    from offload.policies.eviction.history import HistoryWeights

_REGISTRY = {
    "history": ("offload.policies.eviction.history", "HistoryEviction"),
    "lru": ("offload.policies.eviction.lru", "LruEviction"),
    "lfu": ("offload.policies.eviction.lfu", "LfuEviction"),
}

EVICTION_POLICIES = tuple(_REGISTRY)
"""Names that `make_eviction` knows; the first is the default."""


class EvictionPolicy(Protocol):
    """Ranks experts by the routing it has observed. Called by the cache and by replay, on one thread."""

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """One decode step of a layer routed to `experts` (distinct). Called before the step's victims are chosen.

        Mutates the history.
        """
        ...

    def victims(
        self, candidates: Sequence[tuple[int, int]], num_victims: int, scores: np.ndarray | None, layer: int
    ) -> list[int]:
        """Indices in `candidates` ((layer, expert) pairs) of the experts to evict, the first to go first.

        All of a step's victims are chosen in one call: 1 <= `num_victims` <= len(candidates). Choosing n at once
        gives the same as choosing one n times, each time without those chosen before. `scores` [num_experts] are the
        current selection scores of `layer`, the layer that needs the slots; None when there are none. Ties are broken
        by (layer, expert), so that the order of candidates does not matter. Changes nothing.
        """
        ...


def make_eviction(name: str, geometry: Geometry, weights: HistoryWeights | None = None) -> EvictionPolicy:
    """The policy called `name`, with an empty history. Raises ValueError for an unknown name.

    `weights`: those of `history`, in place of its defaults; others have none.
    """
    if name not in _REGISTRY:
        raise ValueError(f"unknown eviction policy {name!r}: choose one of {', '.join(EVICTION_POLICIES)}")
    module, attribute = _REGISTRY[name]
    options = {"weights": weights} if name == "history" else {}
    return cast(EvictionPolicy, getattr(importlib.import_module(module), attribute)(geometry, **options))
