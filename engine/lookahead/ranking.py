"""The short form of a router: the experts it chooses, by one product and a few operations.

A library router also computes gathered, normalised and scaled weights; a prediction needs the choice alone. The short
form works on the router's own weight, in its dtype: it holds no copy. `ranking_search` finds it and checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch.nn import functional as F


class Returned(Enum):
    """What a router's first output is."""

    LOGITS = "logits"
    """The product as it is."""
    SCORES = "scores"
    """What it ranks by."""
    OTHER = "other"


class ExpertGroups(NamedTuple):
    """Only experts of the `num_kept` best of `num_groups` equal groups can be chosen.

    Source: DeepSeek-V3, section 2.1.2 (node-limited routing), where a group counts the sum of its two best scores;
    DeepSeek-V2 counts its best one.
    """

    num_groups: int
    num_kept: int
    is_sum_of_two: bool

    def masked(self, scores: torch.Tensor) -> torch.Tensor:
        """`scores` [tokens, experts] with -inf for every expert that cannot be chosen."""
        grouped = scores.view(len(scores), self.num_groups, -1)
        worth = grouped.topk(2, dim=-1)[0].sum(dim=-1) if self.is_sum_of_two else grouped.amax(dim=-1)
        kept = worth.topk(self.num_kept, dim=-1)[1]
        mask = torch.full_like(worth, -torch.inf).scatter_(1, kept, 0.0)
        return (grouped + mask.unsqueeze(-1)).view_as(scores)


@dataclass(frozen=True, slots=True)
class RouterRanking:
    """The `top_k` best by `score(weight @ hidden + weight_bias) + bias`, within the best groups where there are groups.

    The tensors are the router's own.
    """

    weight: torch.Tensor
    """[experts, hidden]"""
    weight_bias: torch.Tensor | None
    score: Callable[[torch.Tensor], torch.Tensor]
    bias: torch.Tensor | None
    top_k: int
    groups: ExpertGroups | None = None
    returned: Returned = Returned.OTHER
    near_tie_rate: float = 0.0
    """Share of random inputs on which the choice differs from the router's: by an expert whose score is within the
    rounding of the weight's dtype of the last chosen one's."""

    @property
    def num_experts(self) -> int:
        return int(self.weight.shape[0])

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the router ranks by, bias included: its input [tokens, hidden] -> float32 [tokens, experts]."""
        return self.scores_of_logits(self.product(hidden))

    def product(self, hidden: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """The logits of `scale * hidden`: [tokens, hidden] -> float32 [tokens, experts].

        In the weight's dtype, as a float32 copy of a bf16 weight would have to be kept, or made every time.
        """
        logits = F.linear(hidden.to(self.weight.dtype), self.weight).float()
        if scale != 1.0:
            logits = logits * scale
        return logits if self.weight_bias is None else logits + self.weight_bias

    def scores_of_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """float32 [tokens, experts] both."""
        scores = self.score(logits)
        return scores if self.bias is None else scores + self.bias

    def scores_of_output(self, first: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """The scores, from what the router got [tokens, hidden] and its first output [tokens, experts]: float32
        [tokens, experts]."""
        if self.returned is Returned.LOGITS:
            return self.scores_of_logits(first.float())
        return first.float() if self.returned is Returned.SCORES else self.scores(hidden)

    def eligible(self, scores: torch.Tensor) -> torch.Tensor:
        """`scores` [tokens, experts] with -inf for every expert whose group is not among the best."""
        return scores if self.groups is None else self.groups.masked(scores)

    def best_of_logits(self, logits: torch.Tensor) -> list[int]:
        """The experts chosen by one token's logits [1, experts], best first."""
        return self.best(self.scores_of_logits(logits))

    def best(self, scores: torch.Tensor) -> list[int]:
        """The experts chosen by one token's scores [1, experts], best first."""
        experts: list[int] = self.eligible(scores).topk(self.top_k)[1][0].tolist()
        return experts
