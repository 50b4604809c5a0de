"""Recorded routing through the expert cache itself, on a link that moves no bytes: what all replays share.

A view says what one layer's step waits for and what it has fetched ahead: `replay` counts loads, the bench's VirtualRun
measures seconds. `history_sweep` gives the loads of many history policies at once, equal to a `replay` of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from offload.geometry import Geometry
from offload.link.slot_pool import SlotPool
from offload.policies.eviction import EvictionPolicy
from offload.replay.trace import RoutingTrace
from offload.replay.virtual_link import StillLink
from offload.residency.cache import ExpertCache
from offload.residency.warming import warm_layers
from offload.slot_groups import SlotGroups


class TraceRun(ABC):
    """The decode steps of a trace, through one policy. `cache` holds the counters, in the model's own bytes."""

    def __init__(
        self,
        trace: RoutingTrace,
        eviction: EvictionPolicy,
        groups: SlotGroups,
        link: StillLink,
        initial: Sequence[Collection[int]] = (),
    ) -> None:
        """`initial[l]`: the experts of layer l resident at the start."""
        self.trace = trace.decode_only()
        geometry = Geometry(tuple(replace(layer, expert_bytes=1) for layer in trace.geometry.layers))
        pool = SlotPool(groups.slots, (1,) * len(groups.slots))
        self.cache = ExpertCache(geometry, pool, link, eviction, groups.group_of_layer)
        warm_layers(self.cache, [list(experts) for experts in initial])

    def run(self) -> None:
        """All steps, in their order."""
        layers = range(self.trace.geometry.num_layers)
        rows = [self.trace.experts_by_step(layer) for layer in layers]
        for step in range(self.trace.num_steps):
            for layer in layers:
                self.layer_step(step, layer, rows[layer][step])
            self.token_ended()

    @abstractmethod
    def layer_step(self, step: int, layer: int, experts: list[int]) -> None:
        """One layer's step of one token: acquires `experts` and releases them."""

    def token_ended(self) -> None:  # noqa: B027 - most views have nothing to do then
        """All layers of a token are computed."""

    def scores(self, step: int, layer: int) -> np.ndarray | None:
        """The recorded router scores of a layer's step, float16 [experts]; None where there are none."""
        recorded, num_experts = self.trace.scores, self.trace.geometry.layers[layer].num_experts
        return None if recorded is None else recorded[step, layer, :num_experts]
