"""What one layer's router would choose for the hidden state of an earlier layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from engine.lookahead.correction import MeanErrorCorrection
from engine.lookahead.feeds import RouterFeed
from engine.lookahead.norm_step import fold_norm, short_norm
from engine.lookahead.ranking import RouterRanking
from engine.lookahead.ranking_search import find_ranking


@dataclass(slots=True)
class Predictor:
    """The router of one layer behind its own feeding norm. A hidden state is one token's, [..., hidden]."""

    normed: Callable[[torch.Tensor], torch.Tensor]
    ranking: RouterRanking | None
    """The short form of the router's choice; None: the router itself is asked, which takes longer."""
    ask: Callable[[torch.Tensor], Any]
    """The router: its input [tokens, hidden] -> (logits, weights, indices)."""
    why_slow: str = ""
    """Why there is no short form."""
    folded: Callable[[torch.Tensor], torch.Tensor] | None = None
    """The logits without the norm's own step, where that can be had."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of the router, float32 [1, experts]; only with a short form."""
        assert self.ranking is not None, "logits need the short form"
        if self.folded is not None:
            return self.folded(hidden)
        return self.ranking.product(self.normed(hidden).view(1, -1))

    def choose(self, hidden: torch.Tensor, correction: MeanErrorCorrection | None = None) -> list[int]:
        """The experts, most certain first."""
        if self.ranking is None:
            normed = self.normed(hidden)
            return _by_weight(*self.ask(normed.view(-1, normed.shape[-1]))[1:])
        logits = self.logits(hidden)
        return self.ranking.best_of_logits(logits if correction is None else correction.correct(logits))


def build_predictor(feed: RouterFeed, sample: torch.Tensor) -> Predictor:
    """`sample`: what the feeding norm got for one token. Raises what a router raises when it is called out of its
    block."""
    normed = short_norm(feed.norm, sample) if feed.norm is not None else _unchanged
    found = find_ranking(feed.router, feed.extra, feed.ask, normed(sample).view(-1, sample.shape[-1]))
    folded = fold_norm(feed.norm, found.ranking, sample) if found.ranking is not None else None
    return Predictor(normed, found.ranking, feed.ask, found.reason, folded)


def _unchanged(hidden: torch.Tensor) -> torch.Tensor:
    return hidden


def _by_weight(weights: torch.Tensor, indices: torch.Tensor) -> list[int]:
    experts: list[int] = indices.reshape(-1).tolist()
    scores: list[float] = weights.reshape(-1).tolist()
    if len(scores) != len(experts):
        return experts
    return [expert for _, expert in sorted(zip(scores, experts, strict=True), key=lambda pair: -pair[0])]
