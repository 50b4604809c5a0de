"""Experts of several layers ahead, by the past request that the present iteration resembles."""

from __future__ import annotations

from collections.abc import Sequence

from offload.policies.activations.tracker import ActivationTracker
from offload.policies.forecast import ACTIVATIONS
from offload.policies.prefetch import Outlook


class ActivationPrefetcher:
    """Fetches the absent experts of the highest likelihood x (1 - distance/L), over all layers to come, while fewer
    than `depth` copies are on their way.

    After "MoE-Infinity: Sparsity-Aware Expert Cache", section on prefetching. The paper reorders a queue of priorities
    after every layer; here few are queued at a time, so that the next ones follow the newest match.
    """

    num_layers_ahead = 0
    needs_window = False
    waits_for_first_expert = False
    source = ACTIVATIONS

    def __init__(self, depth: int, activations: ActivationTracker) -> None:
        """Raises ValueError for a negative depth."""
        if depth < 0:
            raise ValueError(f"prefetch depth is {depth}")
        self.depth = depth
        self._activations = activations

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        room = self.depth - outlook.count_in_flight()
        planned: list[tuple[int, int]] = []
        if room > 0:
            for name in self._activations.prefetch_order(outlook.layer):
                if outlook.is_absent(*name):
                    planned.append(name)
                    if len(planned) == room:
                        break
        return planned

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher: the tracker observes."""
