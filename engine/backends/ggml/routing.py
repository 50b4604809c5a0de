"""From a router's logits to experts and weights, and what experts are ranked by."""

from __future__ import annotations

import numpy as np
import torch

from engine.backends.ggml.model_spec import SOFTMAX, RouterSpec


class Routing:
    """One MoE layer's choice. `bias`: added to the scores that experts are ranked by, float32 [experts]."""

    def __init__(self, spec: RouterSpec, top_k: int, bias: np.ndarray | None) -> None:
        self._spec, self._top_k = spec, top_k
        self._bias = None if bias is None else torch.from_numpy(bias)

    def choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """logits float32 [tokens, experts] -> (experts int64 [tokens, k], best first, weights float32 [tokens, k])."""
        scores = self._scores(logits)
        if self._bias is None:
            weights, experts = scores.topk(self._top_k)
        else:
            experts = (scores + self._bias).topk(self._top_k)[1]
            weights = scores.gather(1, experts)
        if self._spec.normalises:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return experts, weights if self._spec.scale == 1.0 else weights * self._spec.scale

    def ranked_by(self, logits: torch.Tensor) -> torch.Tensor:
        """What experts are ranked by, bias included: float32 [tokens, experts]."""
        scores = self._scores(logits)
        return scores if self._bias is None else scores + self._bias

    def best(self, logits: torch.Tensor) -> list[int]:
        """The experts that logits [1, experts] choose, best first."""
        ranked = logits if self._bias is None else self.ranked_by(logits)
        experts: list[int] = ranked.topk(self._top_k)[1][0].tolist()
        return experts

    def _scores(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.softmax(dim=-1) if self._spec.scoring == SOFTMAX else logits.sigmoid()


class LogitsTap:
    """What a MoE layer is told of its router in the running forward (see `experts.router_tap`)."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self.logits: torch.Tensor | None = None
        """float32 [tokens, experts], set by the decoder before the layer is called."""

    def scores(self) -> np.ndarray | None:
        """The current token's score per expert, float32 [experts]; None in prefill."""
        if self.logits is None or len(self.logits) != 1:
            return None
        return self._routing.ranked_by(self.logits)[0].numpy()

    def all_scores(self) -> np.ndarray | None:
        """The scores of every token of the running forward, float32 [tokens, experts]."""
        return None if self.logits is None else self._routing.ranked_by(self.logits).numpy()

    def selection_scores(self) -> np.ndarray | None:
        """What the router ranked for the current token: float32 [experts]."""
        return self.scores()
