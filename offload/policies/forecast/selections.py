"""The next layer's experts by those selected so far: a trained predictor, or counts of which follow which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offload.geometry import Geometry
from offload.policies.forecast.selection_predictor import SelectionPredictor, SelectionScorer


class SelectionForecaster:
    """A Forecaster and a RoutingObserver. Goes by routing alone, not by hidden states.

    After "DuoServe-MoE: Dual-Phase Expert Prefetch", section "Mechanism". Without a predictor it counts, while it runs,
    how often each expert of a layer was selected together with each of the layer before.
    """

    def __init__(self, geometry: Geometry, predictor: SelectionPredictor | None = None) -> None:
        layers, widest = geometry.num_layers, max((layer.num_experts for layer in geometry.layers), default=0)
        self._geometry = geometry
        self._scorer = SelectionScorer(predictor) if predictor is not None else None
        self._selected: list[Sequence[int]] = [()] * layers
        """Of the running token, by layer."""
        self._is_decode = False
        self._known = 0
        """Layers of the running token whose selection is known."""
        counted = (layers, widest, widest) if predictor is None else (0, 0, 0)
        self._follows = np.zeros(counted, np.float32)
        """[layer, expert of it, expert of the next layer]: tokens that selected both."""

    # -- RoutingObserver

    def begin_request(self) -> None:
        """See RoutingObserver."""

    def begin_iteration(self, *, is_decode: bool) -> None:
        """See RoutingObserver."""
        self._known, self._is_decode = 0, is_decode
        if self._scorer is not None:
            self._scorer.begin()

    def routed(self, layer: int, experts: Sequence[int], num_tok: Sequence[int]) -> None:
        """See RoutingObserver."""
        if not self._is_decode:
            return
        if self._scorer is not None:
            self._scorer.add(layer, experts)
        elif layer and self._known == layer:
            self._follows[layer - 1][np.ix_(self._selected[layer - 1], experts)] += 1
        self._selected[layer], self._known = experts, layer + 1

    def end_request(self) -> None:
        """See RoutingObserver."""

    # -- Forecaster

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster: the next layer of the same token."""
        return ahead == layer + 1

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster. As many as the layer's k; none before anything was seen."""
        shape = self._geometry.layers[ahead]
        if self._scorer is not None:
            scores = self._scorer.scores()[: shape.num_experts]
        else:
            scores = self._follows[layer, list(self._selected[layer])].sum(axis=0)[: shape.num_experts]
            if not scores.any():
                return []
        best: list[int] = (-scores).argsort(kind="stable")[: shape.top_k].tolist()
        return best

    def learn(self, layer: int) -> None:
        """See Forecaster: it learns from routing."""
