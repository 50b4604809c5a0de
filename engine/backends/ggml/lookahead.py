"""Later routers asked early: the next layer's in the layer's own graph, those behind it by a graph of their own.

A prediction at layer l is router[l+1](norm[l+1](x)), x being layer l's residual after attention and shared experts. Its
mean error is learned and taken off, as on the transformers back end (`lookahead.correction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.backends.ggml.routing import Routing
from engine.lookahead.correction import MeanErrorCorrection
from engine.lookahead.forms import PredictionForm, Way


class GgmlLookahead:
    """A Forecaster. Layers are numbered as MoE layers."""

    def __init__(
        self,
        routings: Sequence[Routing],
        logits: np.ndarray,
        next_logits: np.ndarray,
        ask: Callable[[int], None],
    ) -> None:
        """`logits`, `next_logits`: float32 [1, experts], of the running layer's router and of the one asked last.
        `ask(layer)` computes the latter for a later layer."""
        self._routings = routings
        self._logits, self._next_logits, self._ask = logits, next_logits, ask
        self._corrections: list[dict[int, MeanErrorCorrection]] = [{} for _ in routings]
        self.in_graph: set[int] = set()
        """Layers whose own graph asks the next layer's router."""

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return layer < ahead < len(self._routings)

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster. Call the nearest layer first: its logits are there until another one is asked."""
        if ahead != layer + 1 or layer not in self.in_graph:
            self._ask(ahead)
        correction = self._corrections[ahead].get(layer)
        if correction is None:
            correction = MeanErrorCorrection(self._routings[ahead].best)
            self._corrections[ahead][layer] = correction
        return self._routings[ahead].best(correction.correct(self._next_logits.copy()))

    @property
    def logits(self) -> np.ndarray:
        """Of the running layer's router, float32 [1, experts]: valid until the next layer's."""
        return self._logits

    def logits_ahead(self, ahead: int) -> np.ndarray:
        """The logits that layer `ahead`'s router gives on the residual as it is now: float32 [1, experts], valid until
        another is asked."""
        self._ask(ahead)
        return self._next_logits

    def best(self, layer: int) -> Callable[[np.ndarray], list[int]]:
        """Which experts a layer chooses for logits."""
        return self._routings[layer].best

    def learn(self, layer: int) -> None:
        """See Forecaster."""
        for correction in self._corrections[layer].values():
            if correction.count_step():
                correction.learn(self._logits)

    def forms(self) -> list[PredictionForm]:
        """Per layer, how its experts are predicted."""
        return [PredictionForm(Way.SHORT) for _ in self._routings]
