"""Who leaves a slot: eviction policies, one per file. Pure: no tensors, no I/O, no clock of their own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from offload.geometry import Geometry

if TYPE_CHECKING:
    import numpy as np

    from offload.policies.eviction.history import HistoryWeights

_POLICIES = {
    "history": ("offload.policies.eviction.history", "HistoryEviction"),
    "lru": ("offload.policies.eviction.lru", "LruEviction"),
    "lfu": ("offload.policies.eviction.lfu", "LfuEviction"),
}

EVICTION_NAMES = tuple(_POLICIES)
"""Names `make_eviction` knows."""


class EvictionPolicy(Protocol):
    """Ranks experts by what it has seen of the routing. Called by the cache, on one thread."""

    def observe(self, layer: int, experts: Sequence[int], scores: np.ndarray | None) -> None:
        """One decode step of a layer routed to `experts` (distinct). Called before the step's victims are chosen.

        `scores` [num_experts] are the step's selection scores if they were at hand, else None. Mutates the history.
        """
        ...

    def victim(self, candidates: Sequence[tuple[int, int]], scores: np.ndarray | None, layer: int) -> int:
        """The index in `candidates` ((layer, expert) pairs, not empty) of the expert to evict; changes nothing.

        `scores` [num_experts] are the current selection scores of `layer`, the layer that needs the slot; None when
        there are none. Ties are broken by (layer, expert), so that the order of candidates does not matter.
        """
        ...


def make_eviction(name: str, geometry: Geometry, weights: HistoryWeights | None = None) -> EvictionPolicy:
    """The policy called `name`, with an empty history. Raises ValueError for an unknown name.

    `weights`: those of `history`, in place of its defaults; others have none.
    """
    if name not in _POLICIES:
        raise ValueError(f"unknown eviction policy {name!r}: choose one of {', '.join(EVICTION_NAMES)}")
    module, attribute = _POLICIES[name]
    options = {"weights": weights} if name == "history" else {}
    return cast(EvictionPolicy, getattr(importlib.import_module(module), attribute)(geometry, **options))
