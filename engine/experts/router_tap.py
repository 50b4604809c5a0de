"""What a layer's router said of the running tokens: the scores that eviction, substitution and recording go by."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from engine.experts.step_state import StepState
from engine.lookahead.ranking import RouterRanking
from engine.lookahead.selection_scores import SelectionScores
from offload.geometry import LayerGeometry


class RouterTap:
    """Keeps a router's last input and output. Scores are computed from them only when somebody asks.

    A score is what the router ranks by, bias included, where its short form is known; else what the router returns
    first. In APPROX decode, where substitutions are decided by scores, a router without a short form is watched for
    what it hands to `topk`: its forward then runs inside a function mode, which ends with the call however it ends.
    """

    def __init__(
        self, router: nn.Module | None, ranking: RouterRanking | None, layer: LayerGeometry, state: StepState
    ) -> None:
        """Hooks `router` for its life; without a short form its `forward` is replaced on the instance."""
        self._state, self._layer, self._ranking = state, layer, ranking
        self._input: torch.Tensor | None = None
        self._first: torch.Tensor | None = None
        self._selected_by: torch.Tensor | None = None
        if router is None:
            return
        router.register_forward_hook(self._after)
        if ranking is None:
            self._forward = router.forward
            router.forward = self._watched

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        self._selected_by = None
        if not (self._state.is_approx and self._state.is_decode):
            return self._forward(*args, **kwargs)
        with SelectionScores(self._layer.num_experts, self._layer.top_k) as mode:
            output = self._forward(*args, **kwargs)
        self._selected_by = mode.scores
        return output

    def _after(self, router: nn.Module, args: Any, output: Any) -> None:
        self._input = args[0] if args else None
        self._first = output[0] if isinstance(output, tuple) else None

    def scores(self) -> np.ndarray | None:
        """The current token's score per expert, float32 [num_experts]; None where the router gives none."""
        rows = self.all_scores()
        return rows[0] if rows is not None and len(rows) == 1 else None

    def all_scores(self) -> np.ndarray | None:
        """The scores of every token of the running forward, float32 [tokens, num_experts]; None without any.

        Of a router that keeps only some groups of experts: those of all groups.
        """
        scores = self._scores()
        return None if scores is None else scores.numpy()

    def selection_scores(self) -> np.ndarray | None:
        """What the router ranked for the current token, -inf for experts it could not choose: float32 [num_experts].
        To be asked in APPROX decode. None where the router gives none."""
        if self._ranking is None:
            watched = self._selected_by
            if watched is not None and watched.numel() == self._layer.num_experts:
                return watched.detach().reshape(-1).float().numpy()
            return self.scores()
        rows = self._scores()
        return self._ranking.eligible(rows)[0].numpy() if rows is not None and len(rows) == 1 else None

    def _scores(self) -> torch.Tensor | None:
        first, hidden, num_experts = self._first, self._input, self._layer.num_experts
        if first is None or first.shape[-1] != num_experts:
            return None
        rows = first.detach().reshape(-1, num_experts)
        if self._ranking is None:
            return rows.float()
        assert hidden is not None, "a router with a short form gets its input first"
        return self._ranking.scores_of_output(rows, hidden.detach().reshape(-1, hidden.shape[-1]))
