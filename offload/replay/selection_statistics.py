"""How often experts were selected and which followed which, out of recorded routing; and how right a predictor is."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

import numpy as np

from offload.counters import ratio
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.replay.trace import RoutingTrace


class Accuracy(NamedTuple):
    """Of predictions of one layer's selection for one token."""

    num_predictions: int
    num_exact: int
    """All of the top k were named, among as many names."""
    num_half: int
    """At least half of them."""

    @classmethod
    def total(cls, parts: Iterable[Accuracy]) -> Accuracy:
        """Over several."""
        return cls(*map(sum, zip(*parts, strict=True)))

    @property
    def exact_rate(self) -> float | None:
        """The paper's exact-top-k accuracy, in [0, 1]."""
        return ratio(self.num_exact, self.num_predictions)

    @property
    def half_rate(self) -> float | None:
        """The paper's at-least-half accuracy, in [0, 1]."""
        return ratio(self.num_half, self.num_predictions)


def selection_statistics(trace: RoutingTrace) -> tuple[np.ndarray, np.ndarray]:
    """(popularity float32 [layers, experts], affinity float32 [layers, experts, experts]); see SelectionPredictor."""
    chosen = trace.selection_mask().astype(np.float32)
    steps, layers, experts = chosen.shape
    popularity = chosen.sum(axis=0) / max(steps, 1)
    affinity = np.zeros((layers, experts, experts), np.float32)
    for layer in range(layers - 1):
        together = chosen[:, layer].T @ chosen[:, layer + 1]
        affinity[layer] = together / np.maximum(chosen[:, layer].sum(axis=0), 1)[:, None]
    return popularity.astype(np.float32), affinity


def accuracy_of(predictor: SelectionPredictor, trace: RoutingTrace) -> Accuracy:
    """Over all layers but the first of every decode step."""
    decode = trace.decode_only()
    rows = [decode.experts_by_step(layer) for layer in range(trace.geometry.num_layers)]
    num_predictions = num_exact = num_half = 0
    for step in range(decode.num_steps):
        selected = [row[step] for row in rows]
        for layer in range(1, len(rows)):
            actual = set(selected[layer])
            scores = predictor.scores(selected[:layer])[: trace.geometry.layers[layer].num_experts]
            named = np.argpartition(-scores, len(actual) - 1)[: len(actual)].tolist()
            num_right = len(actual.intersection(named))
            num_predictions += 1
            num_exact += num_right == len(actual)
            num_half += 2 * num_right >= len(actual)
    return Accuracy(num_predictions, num_exact, num_half)


def inference_cost_s(predictor: SelectionPredictor, trace: RoutingTrace) -> float:
    """Mean seconds that all predictions of a token take."""
    decode = trace.decode_only()
    rows = [decode.experts_by_step(layer) for layer in range(trace.geometry.num_layers)]
    began_s = perf_counter()
    for step in range(decode.num_steps):
        selected = [row[step] for row in rows]
        for layer in range(1, len(rows)):
            predictor.scores(selected[:layer])
    return (perf_counter() - began_s) / max(decode.num_steps, 1)
