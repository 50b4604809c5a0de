"""Later routers asked early, in the layer's own graph; those that are not wanted at every step by graphs of their own.

A prediction at layer l is router[l+1](norm[l+1](x)), x being layer l's residual after attention and shared experts. Its
mean error is learned and taken off, as on the transformers back end (`lookahead.correction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from engine.backends.ggml.routing import Routing
from engine.lookahead.correction import MeanErrorCorrection
from engine.lookahead.forms import PredictionForm, Way

MAX_AHEAD: Final = 3
"""Later layers whose routers are asked in a layer's own graph, at most."""


class GgmlLookahead:
    """A Forecaster. Layers are numbered as MoE layers."""

    def __init__(
        self,
        routings: Sequence[Routing],
        logits: np.ndarray,
        next_logits: np.ndarray,
        ask: Callable[[int], None],
    ) -> None:
        """`logits` float32 [1, experts]: of the running layer's router. `next_logits` [MAX_AHEAD + 1, experts]: of the
        routers asked in its graph, and behind them of the one asked last. `ask(layer)` asks a later layer's."""
        self._routings = routings
        self._logits, self._next_logits, self._ask = logits, next_logits, ask
        self._corrections: list[dict[int, MeanErrorCorrection]] = [{} for _ in routings]
        self.in_graph: dict[int, list[int]] = {}
        """Layer -> the later ones whose routers its own graph asks."""

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return layer < ahead < len(self._routings)

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster."""
        asked = self.in_graph.get(layer, [])
        row = asked.index(ahead) if ahead in asked else MAX_AHEAD
        if row == MAX_AHEAD:
            self._ask(ahead)
        correction = self._corrections[ahead].get(layer)
        if correction is None:
            correction = MeanErrorCorrection(self._routings[ahead].best)
            self._corrections[ahead][layer] = correction
        return self._routings[ahead].best(correction.correct(self._next_logits[row : row + 1].copy()))

    @property
    def logits(self) -> np.ndarray:
        """Of the running layer's router, float32 [1, experts]: valid until the next layer's."""
        return self._logits

    def logits_ahead(self, ahead: int) -> np.ndarray:
        """The logits that layer `ahead`'s router gives on the residual as it is now: float32 [1, experts], valid until
        another is asked."""
        self._ask(ahead)
        return self._next_logits[MAX_AHEAD:]

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
