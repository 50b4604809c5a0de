"""Belady's MIN as an eviction policy. It needs the future routing, so it is for replay only."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

import numpy as np

from offload.policies.eviction import EvictionPolicy
from offload.replay.belady import next_uses
from offload.replay.trace import RoutingTrace, max_experts


class BeladyEviction(EvictionPolicy):
    """Evicts the expert whose next use in the trace is the latest, or that is not used again.

    After L. A. Belady (IBM Systems Journal 5(2), 1966), the MIN algorithm, bound to the rules of the cache: the running
    step is locked and nothing bypasses. `offload.replay.belady` has the bounds without these rules.
    """

    def __init__(self, trace: RoutingTrace) -> None:
        """`trace`: the one that is replayed."""
        decode = trace.decode_only()
        following, first = next_uses(decode.ids, max_experts(trace.geometry))
        self._experts = [decode.experts_by_step(layer) for layer in range(trace.geometry.num_layers)]
        self._following = [following[:, layer].tolist() for layer in range(trace.geometry.num_layers)]
        self._next_use: list[list[int]] = first.tolist()
        self._step = [0] * trace.geometry.num_layers
        self._residents: dict[int, set[tuple[int, int]]] = {}

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy. Raises ValueError when the routing is not the trace's."""
        step = self._step[layer]
        if step >= len(self._experts[layer]) or list(experts) != self._experts[layer][step]:
            raise ValueError(f"step {step} of layer {layer} does not follow the trace this policy was made from")
        next_use = self._next_use[layer]
        for expert, use in zip(experts, self._following[layer][step], strict=False):
            next_use[expert] = use
        self._step[layer] = step + 1

    def enter(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        self._residents.setdefault(group, set()).add((layer, expert))

    def leave(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        self._residents[group].discard((layer, expert))

    def victims(
        self,
        group: int,
        num_victims: int,
        held: Collection[tuple[int, int]],
        scores: np.ndarray | None,
        layer: int,
    ) -> list[tuple[int, int]]:
        """See EvictionPolicy."""
        free = [name for name in self._residents.get(group, ()) if name not in held]
        return heapq.nsmallest(num_victims, free, key=lambda name: (-self._next_use[name[0]][name[1]], name))
