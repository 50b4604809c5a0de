"""Replays many history policies at once, with the same loads as `replay` with HistoryEviction: for curves and tuning.

The history does not depend on which experts are resident, so variants share one pass: all variants and layers of a step
are one array operation. Per-layer slots only, no prefetch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from offload.geometry import Geometry
from offload.policies.eviction.history import HistoryWeights, scale_scores
from offload.replay.trace import RoutingTrace, max_experts

LRU_WEIGHTS: Final = HistoryWeights(count=0.0, ema=0.0, score=0.0, recency=1.0, window_steps=1)
"""Recency alone is LRU within a layer."""


class Variant(NamedTuple):
    """One cache to replay."""

    weights: HistoryWeights
    slots_per_layer: Sequence[int]
    initial: Sequence[Collection[int]] | None = None
    """Per layer, the experts resident at the start."""


def sweep_loads(trace: RoutingTrace, variants: Sequence[Variant]) -> np.ndarray:
    """Loads of each variant over the decode steps: int64 [variants, layers].

    Raises ValueError when a variant's slots cannot hold a step, or its initial experts do not fit.
    """
    trace = trace.decode_only()
    state = _Sweep(trace.geometry, variants)
    chosen = trace.selection_mask()
    scaled = None
    for step in range(trace.num_steps):
        if trace.scores is not None and state.uses_scores:
            scaled = scale_scores(trace.scores[step])
        left = [chosen[step - window] if step >= window else None for window in state.windows]
        state.step(chosen[step], left, scaled)
    return state.loads


class _Sweep:
    """Histories and residency of all variants: arrays [variants, layers, experts], padded to the widest layer."""

    def __init__(self, geometry: Geometry, variants: Sequence[Variant]) -> None:
        num_experts = max_experts(geometry)
        shape = (len(variants), geometry.num_layers, num_experts)
        self._exists = np.arange(num_experts) < np.array([[at.num_experts] for at in geometry.layers])
        self._slots = np.array([variant.slots_per_layer for variant in variants], np.int64)
        self._resident = np.zeros(shape, bool)
        for number, variant in enumerate(variants):
            for layer, experts in enumerate(variant.initial or ()):
                self._resident[number, layer, list(experts)] = True
        top_k = np.array([layer.top_k for layer in geometry.layers])
        if self._slots.shape != shape[:2] or (self._slots < np.maximum(top_k, self._resident.sum(axis=2))).any():
            raise ValueError(f"too few slots for a step, or for what is resident at the start: {self._slots.tolist()}")
        self._weights = {
            name: np.array([getattr(variant.weights, name) for variant in variants], np.float64)[:, None, None]
            for name in ("count", "ema", "score", "recency", "ema_decay")
        }
        self.uses_scores = bool(self._weights["score"].any())
        windows = [variant.weights.window_steps for variant in variants]
        self.windows = sorted(set(windows))
        self._window_of = np.array([self.windows.index(window) for window in windows])
        self._count = np.zeros((len(self.windows), *shape[1:]), np.int64)
        decays = self._weights["ema_decay"].ravel().tolist()
        self._decays = np.array(sorted(set(decays)))[:, None, None]
        self._decay_of = np.searchsorted(self._decays.ravel(), decays)
        self._ema = np.zeros((len(self._decays), *shape[1:]))
        self._gain = np.ones_like(self._decays)
        self._last_step = np.zeros(shape[1:], np.int64)
        self._step = 0
        self.loads = np.zeros(shape[:2], np.int64)

    def step(self, chosen: np.ndarray, left: Sequence[np.ndarray | None], scaled: np.ndarray | None) -> None:
        """`chosen` bool [layers, experts]; `left[w]`: the experts chosen in the step that leaves window w; `scaled`
        scores in [0, 1] or None."""
        self._observe(chosen, left)
        missing = chosen & ~self._resident
        num_missing = missing.sum(axis=2)
        if not num_missing.any():
            return
        self.loads += num_missing
        candidates = self._resident & ~chosen
        self._resident |= chosen
        num_leaving = np.maximum(0, self._resident.sum(axis=2) - self._slots)
        variants, layers = np.nonzero(num_leaving)
        if len(variants):
            keep = self._keep_scores(variants, layers, scaled)
            keep[~candidates[variants, layers]] = np.inf
            order = np.argsort(keep, axis=1, kind="stable")
            rows, ranks = np.nonzero(np.arange(keep.shape[1]) < num_leaving[variants, layers][:, None])
            self._resident[variants[rows], layers[rows], order[rows, ranks]] = False

    def _observe(self, chosen: np.ndarray, left: Sequence[np.ndarray | None]) -> None:
        self._step += 1
        self._last_step[chosen] = self._step
        for number, leaving in enumerate(left):
            self._count[number] += chosen
            if leaving is not None:
                self._count[number] -= leaving
        self._gain /= self._decays
        self._ema += self._gain * chosen
        if self._gain.max() > 1e100:
            is_large = self._gain > 1e100
            self._ema /= np.where(is_large, self._gain, 1.0)
            self._gain[is_large] = 1.0

    def _keep_scores(self, variants: np.ndarray, layers: np.ndarray, scaled: np.ndarray | None) -> np.ndarray:
        """Of the named (variant, layer) pairs [pairs, experts]; the order of operations is that of HistoryEviction."""
        weights = {name: values[variants, 0] for name, values in self._weights.items()}
        highest_count = np.maximum(self._count.max(axis=2), 1)[self._window_of[variants], layers][:, None]
        highest_ema = self._ema.max(axis=2)[self._decay_of[variants], layers][:, None]
        highest_ema[highest_ema == 0] = 1.0
        oldest = np.where(self._exists, self._last_step, self._step).min(axis=1)
        longest = np.maximum(self._step - oldest, 1)[layers][:, None]
        age = (self._step - self._last_step)[layers]
        kept: np.ndarray = self._count[self._window_of[variants], layers] * (weights["count"] / highest_count)
        kept = kept + self._ema[self._decay_of[variants], layers] * (weights["ema"] / highest_ema)
        kept = kept - age * (weights["recency"] / longest)
        if scaled is not None:
            kept = kept + scaled[layers] * weights["score"]
        return kept
