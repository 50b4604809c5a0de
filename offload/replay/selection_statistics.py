"""How often experts were selected and which followed which, out of recorded routing; and how right a predictor is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from offload.counters import ratio
from offload.geometry import Geometry
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.policies.forecast.selections import SelectionForecaster
from offload.replay.trace import RoutingTrace

_OTHER_BYTES: Final = 4 << 20
"""More than a core's own cache holds."""


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
    decode, forecaster = trace.decode_only(), SelectionForecaster(trace.geometry, predictor)
    rows = [decode.experts_by_step(layer) for layer in range(trace.geometry.num_layers)]
    num_predictions = num_exact = num_half = 0
    for step in range(decode.num_steps):
        forecaster.begin_iteration(is_decode=True)
        for layer, row in enumerate(rows):
            actual = row[step]
            if layer:
                num_right = len(set(actual).intersection(forecaster.predict(layer - 1, layer)[: len(actual)]))
                num_predictions += 1
                num_exact += num_right == len(actual)
                num_half += 2 * num_right >= len(actual)
            forecaster.routed(layer, actual, (1,) * len(actual))
    return Accuracy(num_predictions, num_exact, num_half)


def inference_cost_s(predictor: SelectionPredictor, geometry: Geometry, num_tok: int = 7) -> float:
    """Seconds that all predictions of a token take on this machine: the median over `num_tok` tokens of any routing.
    Between two predictions other memory is read, as when experts compute: the network has to be fetched anew."""
    forecaster, chance = SelectionForecaster(geometry, predictor), np.random.default_rng(0)
    others = np.zeros(_OTHER_BYTES // 4, np.float32)
    spent_s = []
    for _ in range(num_tok):
        forecaster.begin_iteration(is_decode=True)
        spent_s.append(0.0)
        for layer, shape in enumerate(geometry.layers):
            experts = chance.permutation(shape.num_experts)[: shape.top_k].tolist()
            others.sum()
            began_s = perf_counter()
            forecaster.routed(layer, experts, ())
            if layer + 1 < geometry.num_layers:
                forecaster.predict(layer, layer + 1)
            spent_s[-1] += perf_counter() - began_s
    return statistics.median(spent_s)
