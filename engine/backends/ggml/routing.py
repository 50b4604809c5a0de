"""From a router's logits to experts and weights, and what experts are ranked by."""

from __future__ import annotations

import numpy as np
import torch

from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX_OF_CHOSEN, RouterSpec


class Routing:
    """One MoE layer's choice. `correction`: added to the scores that experts are ranked by, float32 [experts]."""

    def __init__(self, spec: RouterSpec, top_k: int, correction: np.ndarray | None) -> None:
        self._spec, self._top_k = spec, top_k
        self._correction = None if correction is None else torch.from_numpy(correction)
        self._ranks_as_logits = correction is None and spec.num_groups == spec.num_groups_used

    def choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """logits float32 [tokens, experts] -> (experts int64 [tokens, k], best first, weights float32 [tokens, k])."""
        if self._spec.scoring == SOFTMAX_OF_CHOSEN:
            chosen, experts = logits.topk(self._top_k)
            weights = chosen.softmax(dim=-1)
        elif self._ranks_as_logits:
            weights, experts = self._scores(logits).topk(self._top_k)
        else:
            scores = self._scores(logits)
            experts = self._eligible(self._corrected(scores)).topk(self._top_k)[1]
            weights = scores.gather(1, experts)
        if self._spec.normalises:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return experts, weights if self._spec.scale == 1.0 else weights * self._spec.scale

    def ranked_by(self, logits: torch.Tensor) -> torch.Tensor:
        """What experts are ranked by, correction included and groups left aside: float32 [tokens, experts]."""
        return self._corrected(self._scores(logits))

    def selected_by(self, logits: torch.Tensor) -> torch.Tensor:
        """As `ranked_by`; -inf for experts of groups that cannot be chosen."""
        return self._eligible(self.ranked_by(logits))

    def best(self, logits: torch.Tensor) -> list[int]:
        """The experts that logits [1, experts] choose, best first."""
        ranked = logits if self._ranks_as_logits else self.selected_by(logits)
        experts: list[int] = ranked.topk(self._top_k)[1][0].tolist()
        return experts

    def _scores(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.sigmoid() if self._spec.scoring == SIGMOID else logits.softmax(dim=-1)

    def _corrected(self, scores: torch.Tensor) -> torch.Tensor:
        return scores if self._correction is None else scores + self._correction

    def _eligible(self, ranked: torch.Tensor) -> torch.Tensor:
        spec = self._spec
        if spec.num_groups == spec.num_groups_used:
            return ranked
        grouped = ranked.reshape(len(ranked), spec.num_groups, -1)
        of_groups = grouped.topk(spec.group_best)[0].sum(dim=-1)
        left_out = torch.ones_like(of_groups, dtype=torch.bool)
        left_out.scatter_(1, of_groups.topk(spec.num_groups_used)[1], value=False)
        return grouped.masked_fill(left_out.unsqueeze(-1), -torch.inf).reshape(ranked.shape)


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
        """What the router ranked for the current token, -inf for experts it could not choose: float32 [experts]."""
        if self.logits is None or len(self.logits) != 1:
            return None
        return self._routing.selected_by(self.logits)[0].numpy()
