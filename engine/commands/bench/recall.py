"""Recall of predicted experts, by their rank in the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_RANKS = (1, 2, 4)


class RecallState(Protocol):
    """Recall of predicting one layer from one place, with and without the mean error taken off."""

    @property
    def plain(self) -> Recall: ...

    @property
    def corrected(self) -> Recall | None:
        """None where there are no logits to correct."""
        ...


class Recall:
    """Of one layer: over its tokens, how many of the first 1, 2, 4 and k predicted were among the k chosen."""

    def __init__(self, top_k: int) -> None:
        self._hits = {rank: 0 for rank in (*_RANKS, top_k) if rank <= top_k}
        self._num_tok = 0

    def add(self, predicted: Sequence[int], chosen: Sequence[int]) -> None:
        """One token: experts `predicted`, most certain first, and those chosen."""
        self._num_tok += 1
        is_hit = [expert in chosen for expert in predicted]
        for rank in self._hits:
            self._hits[rank] += sum(is_hit[:rank])

    @property
    def rates(self) -> dict[int, float]:
        """By rank r, the share of the first r predicted that were chosen; at k this is recall@k."""
        return {rank: hits / max(self._num_tok * rank, 1) for rank, hits in self._hits.items()}

    @property
    def at_k(self) -> float:
        """Recall@k: the share of the chosen experts that were predicted."""
        return self.rates[max(self._hits)]
