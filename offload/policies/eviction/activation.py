"""Eviction by the activation matrix of the past request that the present iteration resembles."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from offload.policies.activations.tracker import ActivationTracker
from offload.policies.eviction import EvictionPolicy


class ActivationEviction(EvictionPolicy):
    """Evicts the resident of the lowest p = (EAM[layer, expert] + epsilon)(1 - layer/L) / row sum.

    After "MoE-Infinity: Sparsity-Aware Expert Cache", section on caching: it also prefers to keep early layers, where
    prefetching is worst. Ours: what was prefetched for a layer of the running iteration that is still to come goes
    last. By the formula a late layer's prefetches are the first to go, before they are used.
    """

    def __init__(self, activations: ActivationTracker) -> None:
        self._activations = activations
        self._residents: dict[int, np.ndarray] = {}
        """Per group, bool [layers, experts]."""
        self._awaited = np.zeros(activations.collection.shape, np.float32)
        """[layers, experts]: 2, more than any priority, where a prefetch has landed before its layer."""

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy: the tracker observes the rest."""
        self._awaited[layer] = 0

    def enter(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        own = self._residents.get(group)
        if own is None:
            own = self._residents[group] = np.zeros(self._activations.collection.shape, bool)
        own[layer, expert] = True
        if layer > self._activations.running_layer:
            self._awaited[layer, expert] = 2

    def leave(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        self._residents[group][layer, expert] = False
        self._awaited[layer, expert] = 0

    def victims(
        self,
        group: int,
        num_victims: int,
        held: Collection[tuple[int, int]],
        scores: np.ndarray | None,
        layer: int,
    ) -> list[tuple[int, int]]:
        """See EvictionPolicy."""
        own = self._residents.get(group)
        if own is None:
            return []
        priority = np.where(own, self._activations.keep_priority() + self._awaited, np.inf)
        for name in held:
            priority[name] = np.inf
        flat = priority.ravel()
        if num_victims == 1:
            order = [int(flat.argmin())]
        else:
            num = min(num_victims, flat.size)
            highest = np.partition(flat, num - 1)[num - 1]
            lowest = np.flatnonzero(flat <= highest)
            order = lowest[np.argsort(flat[lowest], kind="stable")][:num].tolist()
        width = own.shape[1]
        return [divmod(at, width) for at in order if np.isfinite(flat[at])]
