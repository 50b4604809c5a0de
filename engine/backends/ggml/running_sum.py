"""Sums a prompt's expert outputs in the order in which the experts come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

RunExpert = Callable[[np.ndarray, Any], np.ndarray]
"""One expert on rows [n, hidden] -> [n, hidden]."""


class RunningSum:
    """Adds each expert's weighted outputs as it comes, `max_rows` rows at a time: experts must come in an order that
    follows from the routing. Holds one row a token."""

    def __init__(self, run: RunExpert, hidden: np.ndarray, weights: np.ndarray, max_rows: int) -> None:
        """hidden float32 [tokens, hidden], weights float32 [tokens, k]."""
        self._run, self._hidden, self._weights, self._max_rows = run, hidden, weights, max_rows
        self._out = np.zeros_like(hidden)

    def add(self, bound: Any, rows: np.ndarray) -> None:
        """One expert on its `rows` of the flat [tokens * k] routing, ascending."""
        weights, top_k = self._weights.reshape(-1, 1), self._weights.shape[1]
        for start in range(0, len(rows), self._max_rows):
            part = rows[start : start + self._max_rows]
            tokens = part // top_k
            outputs = self._run(self._hidden[tokens], bound)
            outputs *= weights[part]
            if (tokens[1:] == tokens[:-1]).any():  # a router may choose an expert twice for a token
                np.add.at(self._out, tokens, outputs)
            else:
                self._out[tokens] += outputs

    def result(self) -> np.ndarray:
        """[tokens, hidden]"""
        return self._out
