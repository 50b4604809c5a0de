"""Later routers asked early, in the layer's own graph; those that are not wanted at every step by graphs of their own.

A prediction at layer l is router[l+1](norm[l+1](x)), x being layer l's residual after attention and shared experts. Its
mean error is learned and taken off, as on the transformers back end (`lookahead.correction`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from engine.backends.ggml.memory import Memory, values
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
        next_orders: np.ndarray | None,
        ask: Callable[[int], None],
    ) -> None:
        """`logits` float32 [1, experts]: of the running layer's router. `next_logits` [MAX_AHEAD + 1, experts]: of the
        routers asked in its graph, and behind them of the one asked last. `next_orders` int32 [MAX_AHEAD, experts]: the
        former ones' experts, the best first, their mean errors taken off; None: graphs do not rank. `ask(layer)` asks
        a later layer's."""
        self._routings = routings
        self._logits, self._next_logits, self._ask = logits, next_logits, ask
        self._next_best = None if next_orders is None else next_orders[:, : routings[0].top_k]
        self._corrections: list[dict[int, MeanErrorCorrection]] = [{} for _ in routings]
        num_experts = next_logits.shape[1]
        memory = Memory(4 * num_experts * MAX_AHEAD * len(routings))
        self._mean_errors_at = memory.address
        self._mean_errors = values(memory.bytes, np.float32, len(routings), MAX_AHEAD, num_experts)
        self.in_graph: dict[int, list[int]] = {}
        """Layer -> the later ones whose routers its own graph asks."""

    def ask_in_graphs(self, targets: Sequence[Sequence[int]]) -> None:
        """Each layer's own graph asks the routers of its `targets` from now on, as many as it can."""
        self.in_graph = {layer: list(ahead[:MAX_AHEAD]) for layer, ahead in enumerate(targets)}
        self._mean_errors[:] = 0.0
        for layer, asked in self.in_graph.items():
            for ahead in asked:
                self._pass_on(layer, ahead)

    def asked_by(self, layer: int) -> list[tuple[int, int]]:
        """(later layer, where the graph finds what is added to its router's logits, float32 [experts]) of all that a
        layer's own graph asks."""
        first = self._mean_errors_at + int(self._mean_errors.strides[0]) * layer
        row_bytes = int(self._mean_errors.strides[1])
        return [(ahead, first + row_bytes * place) for place, ahead in enumerate(self.in_graph.get(layer, ()))]

    def _pass_on(self, layer: int, ahead: int) -> None:
        """Writes the mean error of a prediction to where the layer's graph finds it."""
        correction = self._corrections[ahead].get(layer)
        if correction is not None:
            self._mean_errors[layer, self.in_graph[layer].index(ahead)] = correction.shift

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return layer < ahead < len(self._routings)

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster."""
        correction = self._corrections[ahead].get(layer)
        if correction is None:
            correction = MeanErrorCorrection(self._routings[ahead].best)
            self._corrections[ahead][layer] = correction
        asked = self.in_graph.get(layer, [])
        row = asked.index(ahead) if ahead in asked else MAX_AHEAD
        logits = self._next_logits[row : row + 1]
        if row == MAX_AHEAD:
            self._ask(ahead)
        elif self._next_best is not None:
            correction.keep(logits)
            best: list[int] = self._next_best[row].tolist()
            return best
        return self._routings[ahead].best(correction.correct(logits.copy()))

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
        for earlier, correction in self._corrections[layer].items():
            if correction.count_step():
                correction.learn(self._logits)
                if layer in self.in_graph.get(earlier, ()):
                    self._pass_on(earlier, layer)

    def forms(self) -> list[PredictionForm]:
        """Per layer, how its experts are predicted."""
        return [PredictionForm(Way.SHORT) for _ in self._routings]
