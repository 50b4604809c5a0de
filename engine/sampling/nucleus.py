"""Top-p: the likeliest tokens that together hold a share of the probability."""

from __future__ import annotations

from typing import cast

import torch
from transformers import LogitsProcessor, TopPLogitsWarper

_NUM_LIKELIEST = 1024


class NucleusWarper(LogitsProcessor):
    """The library's top-p without its sort of the whole vocabulary, which takes milliseconds a token.

    Where the likeliest `_NUM_LIKELIEST` tokens hold the nucleus it is found among them; else the library is asked.
    """

    def __init__(self, top_p: float) -> None:
        self._top_p, self._library = top_p, TopPLogitsWarper(top_p=top_p)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` [1, vocab] with -inf outside of the nucleus."""
        values, indices = scores.topk(min(_NUM_LIKELIEST, scores.shape[-1]))
        probabilities = (values - scores.logsumexp(dim=-1, keepdim=True)).exp()
        mass = probabilities.cumsum(dim=-1)
        if mass[0, -1] < self._top_p:
            return cast(torch.FloatTensor, self._library(input_ids, scores))
        kept = mass - probabilities < self._top_p
        warped = torch.full_like(scores, -torch.inf).scatter_(1, indices[kept][None], values[kept][None])
        return cast(torch.FloatTensor, warped)
