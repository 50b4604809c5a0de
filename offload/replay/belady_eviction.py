"""Belady's MIN as an eviction policy. It needs the future routing, so it is for replay only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offload.policies.eviction.lowest_ranked import lowest_ranked
from offload.replay.belady import next_uses
from offload.replay.trace import RoutingTrace, max_experts


class BeladyEviction:
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

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy. Raises ValueError when the routing is not the trace's."""
        step = self._step[layer]
        if step >= len(self._experts[layer]) or list(experts) != self._experts[layer][step]:
            raise ValueError(f"step {step} of layer {layer} does not follow the trace this policy was made from")
        next_use = self._next_use[layer]
        for expert, use in zip(experts, self._following[layer][step], strict=False):
            next_use[expert] = use
        self._step[layer] = step + 1

    def victims(
        self, candidates: Sequence[tuple[int, int]], num_victims: int, scores: np.ndarray | None, layer: int
    ) -> list[int]:
        """See EvictionPolicy."""
        return lowest_ranked([(-self._next_use[at][expert], at, expert) for at, expert in candidates], num_victims)
