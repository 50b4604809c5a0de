"""How a prompt's expert outputs are summed by torch: in top-k order, as the library does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

RunExpert = Callable[[torch.Tensor, Any], torch.Tensor]
"""One expert on rows [n, hidden] -> [n, hidden]."""


class TopKSum:
    """Keeps every routed row's output, and sums over k in top-k order: the order in which experts come changes nothing.

    Holds tokens * k rows.
    """

    def __init__(self, run: RunExpert, hidden: torch.Tensor, weights: torch.Tensor) -> None:
        """hidden [tokens, hidden], weights [tokens, k]."""
        self._run, self._hidden, self._weights = run, hidden, weights
        self._out = torch.zeros(weights.numel(), hidden.shape[-1], dtype=hidden.dtype)

    def add(self, bound: Any, rows: torch.Tensor) -> None:
        """One expert on its `rows` of the flat [tokens * k] routing."""
        top_k = self._weights.shape[1]
        self._out[rows] = self._run(self._hidden[rows // top_k], bound).to(self._out.dtype)

    def flush(self) -> None:
        """See PromptSum: nothing waits."""

    def result(self) -> torch.Tensor:
        """[tokens, hidden]"""
        return weighted_sum(self._out, self._weights, self._hidden.dtype)


def weighted_sum(rows: torch.Tensor, weights: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`rows` [tokens * k, hidden], weighted by `weights` [tokens, k] and summed over k in top-k order, as the library
    does: [tokens, hidden]."""
    weighted = rows * weights.reshape(-1, 1)
    return weighted.view(*weights.shape, rows.shape[-1]).sum(dim=1).to(dtype)
