"""Base of the policies whose rank of an expert only rises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from offload.policies.eviction import EvictionPolicy
from offload.policies.eviction.rank_order import RankOrder

if TYPE_CHECKING:
    import numpy as np


class OrderedEviction(EvictionPolicy, ABC):
    """An EvictionPolicy over a `RankOrder`."""

    def __init__(self) -> None:
        self._order = RankOrder(self.rank)

    @abstractmethod
    def rank(self, layer: int, expert: int) -> Any:
        """The lowest goes first; never falls."""

    @abstractmethod
    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy."""

    def enter(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        self._order.enter(group, layer, expert)

    def leave(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        self._order.leave(group, layer, expert)

    def victims(
        self,
        group: int,
        num_victims: int,
        held: Collection[tuple[int, int]],
        scores: np.ndarray | None,
        layer: int,
    ) -> list[tuple[int, int]]:
        """See EvictionPolicy."""
        return self._order.lowest(group, num_victims, held)
