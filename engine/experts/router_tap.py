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
    """Keeps a router's last output. Scores are computed from it only when somebody asks.

    A score is what the router ranks by, bias included, where its ranking is known in the short form; else what the
    router returns as its logits. In APPROX, where every substitution is decided by scores, a router without a short
    form is watched for what it hands to `topk`.
    """

    def __init__(
        self, router: nn.Module | None, ranking: RouterRanking | None, layer: LayerGeometry, state: StepState
    ) -> None:
        self._state, self._layer, self._ranking = state, layer, ranking
        self._logits: torch.Tensor | None = None
        self._selection: SelectionScores | None = None
        if router is None:
            return
        router.register_forward_hook(self._after)
        if ranking is None:
            router.register_forward_pre_hook(self._before)

    def _before(self, router: nn.Module, args: Any) -> None:
        if self._state.is_approx and self._state.is_decode:
            self._selection = SelectionScores(self._layer.num_experts, self._layer.top_k)
            self._selection.__enter__()  # type: ignore[no-untyped-call]

    def _after(self, router: nn.Module, args: Any, output: Any) -> None:
        self._logits = output[0] if isinstance(output, tuple) else None
        if self._selection is not None:
            self._selection.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def scores(self) -> np.ndarray | None:
        """The current token's score per expert, float32 [num_experts]; None where the router gives none."""
        rows = self.all_scores()
        return rows[0] if rows is not None and len(rows) == 1 else None

    def all_scores(self) -> np.ndarray | None:
        """The scores of every token of the running forward, float32 [tokens, num_experts]; None without any."""
        logits = self._logits
        if logits is None or logits.shape[-1] != self._layer.num_experts:
            return None
        rows = logits.detach().reshape(-1, self._layer.num_experts).float()
        return (self._ranking.of_logits(rows) if self._ranking is not None else rows).numpy()

    def selection_scores(self) -> np.ndarray | None:
        """What the router ranked for the current token: to be asked once, in APPROX decode."""
        mode, self._selection = self._selection, None
        if mode is None or mode.scores is None or mode.scores.numel() != self._layer.num_experts:
            return self.scores()
        return mode.scores.detach().reshape(-1).float().numpy()
