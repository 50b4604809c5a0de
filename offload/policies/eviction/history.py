"""Routing-history eviction."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from offload.geometry import Geometry
from offload.policies.eviction import EvictionPolicy

_RESCALE_AT = 1e100
_SMALLEST_SPREAD = 1e-30
"""Scores closer together than this are taken to be equal."""


@dataclass(frozen=True, slots=True)
class HistoryWeights:
    """The nonnegative weights of the four terms, and how far the first two look back. The paper gives no values.

    The defaults were found by replay (`offload.replay.tuning`).
    """

    count: float = 1.0
    """Of the selections in the last `window_steps` steps of the layer."""
    ema: float = 2.0
    """Of the exponential moving average of selections."""
    score: float = 0.5
    """Of the current router score, where there is one."""
    recency: float = 1.0
    """Of how recently the expert was selected."""
    window_steps: int = 256
    ema_decay: float = 0.8
    """The factor by which each step multiplies the average."""

    def __post_init__(self) -> None:
        if min(self.count, self.ema, self.score, self.recency) < 0:
            raise ValueError(f"weights must not be negative: {self}")
        if self.window_steps < 1 or not 0 < self.ema_decay < 1:
            raise ValueError(f"impossible history: {self}")


class _LayerHistory:
    """The history of one layer. Instead of decaying every average at each step, a new selection's weight `gain`
    grows."""

    __slots__ = ("count", "ema", "gain", "last_step", "ranked", "residents", "step", "window")

    def __init__(self, num_experts: int) -> None:
        self.step = 0
        self.window: deque[Sequence[int]] = deque()
        self.count = [0] * num_experts
        self.ema = [0.0] * num_experts
        self.gain = 1.0
        self.last_step = [0] * num_experts
        self.residents: set[int] = set()
        self.ranked: list[tuple[float, tuple[int, int]]] | None = None
        """The residents without scores, lowest first; None: to be sorted anew."""


class HistoryEviction(EvictionPolicy):
    """Evicts the expert with the lowest routing-history score.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism": the score combines the selection count over a
    recent window W, an EMA of selections, the current router score and the age since the last selection, each
    normalised across the layer, with nonnegative weights. Count and EMA are divided by the layer's largest, the router
    score is scaled from the layer's lowest (0) to its highest (1), and an age a counts as -a / (the layer's largest).
    """

    def __init__(self, geometry: Geometry, weights: HistoryWeights | None = None) -> None:
        self._weights = weights or HistoryWeights()
        self._layers = [_LayerHistory(layer.num_experts) for layer in geometry.layers]
        self._layers_of: dict[int, list[int]] = {}
        """Per group, the layers that have or had residents in it."""

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See EvictionPolicy."""
        history = self._layers[layer]
        history.step = step = history.step + 1
        history.gain = gain = history.gain / self._weights.ema_decay
        count, ema, last_step = history.count, history.ema, history.last_step
        for expert in experts:
            count[expert] += 1
            ema[expert] += gain
            last_step[expert] = step
        history.ranked = None
        history.window.append(tuple(experts))
        if step > self._weights.window_steps:
            for expert in history.window.popleft():
                count[expert] -= 1
        if gain > _RESCALE_AT:
            history.ema = [value / gain for value in ema]
            history.gain = 1.0

    def enter(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        history = self._layers[layer]
        history.residents.add(expert)
        history.ranked = None
        layers = self._layers_of.setdefault(group, [])
        if layer not in layers:
            layers.append(layer)

    def leave(self, group: int, layer: int, expert: int) -> None:
        """See EvictionPolicy."""
        history = self._layers[layer]
        history.residents.discard(expert)
        history.ranked = None

    def victims(
        self,
        group: int,
        num_victims: int,
        held: Collection[tuple[int, int]],
        scores: np.ndarray | None,
        layer: int,
    ) -> list[tuple[int, int]]:
        """See EvictionPolicy. Only layers whose history or residents have changed since are ranked again."""
        ranked: list[tuple[float, tuple[int, int]]] = []
        for at in self._layers_of.get(group, ()):
            if at == layer:
                ranked += self._lowest_of(at, num_victims, held, scores)
            else:
                ranked += self._first_of(at, num_victims, held)
        if num_victims == 1:
            return [min(ranked)[1]] if ranked else []
        return [name for _, name in heapq.nsmallest(num_victims, ranked)]

    def _lowest_of(
        self, layer: int, num: int, held: Collection[tuple[int, int]], scores: np.ndarray | None
    ) -> list[tuple[float, tuple[int, int]]]:
        """The lowest `num` of a layer with current scores, if there are any."""
        experts = list(self._layers[layer].residents.difference([expert for at, expert in held if at == layer]))
        pairs = zip(self._worth(layer, experts, scores), experts, strict=True)
        if num == 1:
            return [(worth, (layer, expert)) for worth, expert in ([min(pairs)] if experts else [])]
        return [(worth, (layer, expert)) for worth, expert in heapq.nsmallest(num, pairs)]

    def _first_of(self, layer: int, num: int, held: Collection[tuple[int, int]]) -> list[tuple[float, tuple[int, int]]]:
        """The lowest `num` of a layer without current scores."""
        history = self._layers[layer]
        if history.ranked is None:
            experts = list(history.residents)
            names = [(layer, expert) for expert in experts]
            history.ranked = sorted(zip(self._worth(layer, experts, None), names, strict=True))
        found: list[tuple[float, tuple[int, int]]] = []
        for entry in history.ranked:
            if len(found) == num:
                break
            if entry[1] not in held:
                found.append(entry)
        return found

    def _worth(self, layer: int, experts: Sequence[int], scores: np.ndarray | None) -> list[float]:
        """The routing-history score of each of these experts of a layer."""
        weights, history = self._weights, self._layers[layer]
        count, ema, step, last_step = history.count, history.ema, history.step, history.last_step
        count_scale = weights.count / (max(count) or 1)
        ema_scale = weights.ema / (max(ema) or 1.0)
        age_scale = weights.recency / ((step - min(last_step)) or 1)
        worth = [count[e] * count_scale + ema[e] * ema_scale - (step - last_step[e]) * age_scale for e in experts]
        if scores is None or not weights.score:
            return worth
        values: list[float] = scores.tolist()
        if not math.isfinite(sum(values)):
            values = scale_scores(scores).tolist()
        low = min(values)
        spread = max(values) - low
        spread = spread if spread > _SMALLEST_SPREAD else 1.0
        return [
            kept + (values[expert] - low) / spread * weights.score for kept, expert in zip(worth, experts, strict=True)
        ]


def scale_scores(scores: np.ndarray) -> np.ndarray:
    """Scores [..., experts] scaled over the finite ones of a row: float64, from 0 (the lowest) to 1 (the highest).

    What is not finite (masked out by the router, or NaN) counts as 0, and so do all of a row of equal scores.
    """
    values = scores.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        lowest = np.where(finite, values, np.inf).min(axis=-1, keepdims=True)
        values = np.where(finite, values, np.where(np.isfinite(lowest), lowest, 0.0))
    low = values.min(axis=-1, keepdims=True)
    spread = values.max(axis=-1, keepdims=True) - low
    scaled: np.ndarray = (values - low) / np.where(spread > _SMALLEST_SPREAD, spread, 1.0)
    return scaled
