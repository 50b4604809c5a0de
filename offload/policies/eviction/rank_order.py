"""The residents of a slot group by a rank that only rises: nothing is sorted when a victim is asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from typing import Any


class _Group:
    __slots__ = ("heap", "queued", "residents")

    def __init__(self) -> None:
        self.heap: list[tuple[Any, int, int]] = []
        """(rank when it was queued, layer, expert): at most the rank that the expert has now."""
        self.queued: set[tuple[int, int]] = set()
        """Experts with an entry in the heap."""
        self.residents: set[tuple[int, int]] = set()


class RankOrder:
    """Residents by group. An entry whose rank has risen since it was queued is moved when it comes up: a routed expert
    costs nothing until then, and a victim some microseconds, however large the group is."""

    def __init__(self, rank: Callable[[int, int], Any]) -> None:
        """`rank(layer, expert)`: the lowest goes first, of equal ones the lowest (layer, expert). It must never fall
        while the expert is resident or queued."""
        self._rank = rank
        self._groups: dict[int, _Group] = {}

    def enter(self, group: int, layer: int, expert: int) -> None:
        """The expert is resident in a slot of the group."""
        own = self._groups.get(group)
        if own is None:
            own = self._groups[group] = _Group()
        own.residents.add((layer, expert))
        if (layer, expert) not in own.queued:
            own.queued.add((layer, expert))
            heapq.heappush(own.heap, (self._rank(layer, expert), layer, expert))

    def leave(self, group: int, layer: int, expert: int) -> None:
        """The expert is not resident any more."""
        self._groups[group].residents.discard((layer, expert))

    def lowest(self, group: int, num: int, held: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
        """Up to `num` residents of the lowest ranks, lowest first, none of `held`."""
        own = self._groups.get(group)
        if own is None:
            return []
        heap, found, kept = own.heap, list[tuple[int, int]](), list[tuple[Any, int, int]]()
        while heap and len(found) < num:
            queued, layer, expert = heap[0]
            name = (layer, expert)
            if name not in own.residents:
                heapq.heappop(heap)
                own.queued.discard(name)
            elif queued != (rank := self._rank(layer, expert)):
                heapq.heapreplace(heap, (rank, layer, expert))
            else:
                kept.append(heapq.heappop(heap))
                if name not in held:
                    found.append(name)
        for entry in kept:
            heapq.heappush(heap, entry)
        return found
