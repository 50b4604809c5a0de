"""Eviction policies choose a slot's victim: one per file. Pure: no tensors, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

from offload.policies.inputs import PolicyInputs, Row, make_policy

if TYPE_CHECKING:
    import numpy as np

    from offload.geometry import Geometry
    from offload.policies.eviction.history import HistoryWeights

_REGISTRY: Final[dict[str, Row]] = {
    "history": ("offload.policies.eviction.history", "HistoryEviction", ("geometry", "weights")),
    "lru": ("offload.policies.eviction.lru", "LruEviction", ("geometry",)),
    "lfu": ("offload.policies.eviction.lfu", "LfuEviction", ("geometry",)),
    "activation": ("offload.policies.eviction.activation", "ActivationEviction", ("activations",)),
    "not-picked": ("offload.policies.eviction.not_picked", "NotPickedEviction", ("geometry",)),
    "keep-none": ("offload.policies.eviction.keep_none", "KeepNoneEviction", ("geometry",)),
}

EVICTION_POLICIES = tuple(_REGISTRY)
"""Names that `make_eviction` knows."""

HISTORY_POLICIES = ("history", "lru", "lfu")
"""Those that go by past routing alone, whatever the slots are: replays compare them."""


class EvictionPolicy(Protocol):
    """Orders the residents of each slot group by the routing it has observed, and keeps that order as experts come and
    go. Called by the cache and by replay, on one thread."""

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """One decode step of a layer routed to `experts` (distinct). Called before the step's victims are chosen.

        Mutates the history.
        """
        ...

    def enter(self, group: int, layer: int, expert: int) -> None:
        """The expert is resident in a slot of the group: from now on it can be a victim."""
        ...

    def leave(self, group: int, layer: int, expert: int) -> None:
        """The expert is resident no more."""
        ...

    def unwanted(self, group: int, layer: int, experts: Sequence[int]) -> Sequence[tuple[int, int]]:
        """Residents of the group, as (layer, expert), to be dropped at once, now that `layer` was routed to `experts`;
        by default (), and what is resident stays until its slot is needed. Called after `observe`, and for every layer
        with no experts at the end of a prompt, which is not observed; changes nothing."""
        return ()

    def victims(
        self,
        group: int,
        num_victims: int,
        held: Collection[tuple[int, int]],
        scores: np.ndarray | None,
        layer: int,
    ) -> list[tuple[int, int]]:
        """Residents of the group, as (layer, expert), to evict, the first to go first: `num_victims`, or as many as
        there are that are not `held`.

        Choosing n at once gives the same as choosing one n times, each time with those before among the held. `scores`
        [num_experts] are the current selection scores of `layer`, the layer that needs the slots; None when there are
        none. Ties are broken by (layer, expert). Changes nothing.
        """
        ...


def make_eviction(
    name: str, geometry: Geometry | PolicyInputs, weights: HistoryWeights | None = None
) -> EvictionPolicy:
    """The policy called `name`, with an empty history and no residents. Raises ValueError for an unknown name.

    `weights`: those of `history`, in place of its defaults; others have none. Policies of one configuration are made
    with the same PolicyInputs.
    """
    inputs = geometry if isinstance(geometry, PolicyInputs) else PolicyInputs(geometry, weights=weights)
    return cast(EvictionPolicy, make_policy("eviction policy", _REGISTRY, name, inputs))
