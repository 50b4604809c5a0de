"""From a router's logits to experts and weights, and what experts are ranked by."""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.model_spec import SOFTMAX, RouterSpec


class Routing:
    """One MoE layer's choice. `bias`: added to the scores that experts are ranked by, float32 [experts]."""

    def __init__(self, spec: RouterSpec, top_k: int, bias: np.ndarray | None) -> None:
        self._spec, self._top_k, self._bias = spec, top_k, bias

    def choose(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """logits float32 [tokens, experts] -> (experts int64 [tokens, k], best first, weights float32 [tokens, k])."""
        scores = self._scores(logits)
        experts = _largest(scores if self._bias is None else scores + self._bias, self._top_k)
        weights = np.take_along_axis(scores, experts, axis=1)
        if self._spec.normalises:
            weights = weights / (weights.sum(axis=1, keepdims=True) + np.float32(1e-20))
        return experts, weights if self._spec.scale == 1.0 else weights * np.float32(self._spec.scale)

    def ranked_by(self, logits: np.ndarray) -> np.ndarray:
        """What experts are ranked by, bias included: float32 [tokens, experts]."""
        scores = self._scores(logits)
        return scores if self._bias is None else scores + self._bias

    def best(self, logits: np.ndarray) -> list[int]:
        """The experts that logits [1, experts] choose, best first."""
        experts: list[int] = _largest(logits if self._bias is None else self.ranked_by(logits), self._top_k)[0].tolist()
        return experts

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        if self._spec.scoring != SOFTMAX:
            gates: np.ndarray = np.float32(1) / (np.float32(1) + np.exp(-logits))
            return gates
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
        return shares


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` largest of every row are, the largest first; of equal ones the first. int64 [rows, count]"""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


class LogitsTap:
    """What a MoE layer is told of its router in the running forward (see `experts.router_tap`)."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self.logits: np.ndarray | None = None
        """float32 [tokens, experts], set by the decoder before the layer is called."""

    def scores(self) -> np.ndarray | None:
        """The current token's score per expert, float32 [experts]; None in prefill."""
        if self.logits is None or len(self.logits) != 1:
            return None
        scores: np.ndarray = self._routing.ranked_by(self.logits)[0]
        return scores

    def all_scores(self) -> np.ndarray | None:
        """The scores of every token of the running forward, float32 [tokens, experts]."""
        return None if self.logits is None else self._routing.ranked_by(self.logits)

    def selection_scores(self) -> np.ndarray | None:
        """What the router ranked for the current token: float32 [experts]."""
        return self.scores()
