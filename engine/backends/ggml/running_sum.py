"""Sums a prompt's expert outputs in the order in which the experts come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

RunExperts = Callable[[np.ndarray, Sequence[tuple[Any, int]]], np.ndarray]
"""Rows [n, hidden] of one expert after the other, and each expert with the number of its rows -> [n, hidden]."""


class SumLimits(NamedTuple):
    """Of what is computed at once."""

    max_rows: int
    max_experts: int


class RunningSum:
    """Adds the experts' weighted outputs in the order they come in, which must follow from the routing. Several are
    computed at once, on `max_rows` rows in all; an expert of more rows is several products. Holds one row a token."""

    def __init__(
        self,
        run: RunExperts,
        slot_area: Callable[[Any], object],
        hidden: np.ndarray,
        weights: np.ndarray,
        limits: SumLimits,
    ) -> None:
        """hidden float32 [tokens, hidden], weights float32 [tokens, k]. `slot_area`: experts for which it is equal are
        computed best at once."""
        self._run, self._slot_area, self._hidden, self._weights = run, slot_area, hidden, weights
        self._limits, self._out = limits, np.zeros_like(hidden)
        self._pending: list[tuple[Any, np.ndarray]] = []
        self._num_pending = 0

    def add(self, bound: Any, rows: np.ndarray) -> None:
        """One expert on its `rows` of the flat [tokens * k] routing, ascending. It is computed before the next `flush`
        returns."""
        max_rows, max_experts = self._limits
        for start in range(0, len(rows), max_rows):
            part = rows[start : start + max_rows]
            if self._num_pending + len(part) > max_rows or len(self._pending) == max_experts:
                self.flush()
            self._pending.append((bound, part))
            self._num_pending += len(part)

    def flush(self) -> None:
        """Computes what was added."""
        by_area: dict[object, list[int]] = {}
        for place, (bound, _) in enumerate(self._pending):
            by_area.setdefault(self._slot_area(bound), []).append(place)
        outputs: dict[int, np.ndarray] = {}
        for places in by_area.values():
            outputs.update(zip(places, self._computed([self._pending[place] for place in places]), strict=True))
        for place, (_, rows) in enumerate(self._pending):
            self._take_in(rows // self._weights.shape[1], outputs[place])
        self._pending.clear()
        self._num_pending = 0

    def _computed(self, experts: Sequence[tuple[Any, np.ndarray]]) -> list[np.ndarray]:
        """The weighted outputs of each."""
        rows = np.concatenate([own for _, own in experts])
        tokens = rows // self._weights.shape[1]
        outputs = self._run(self._hidden[tokens], [(bound, len(own)) for bound, own in experts])
        outputs *= self._weights.reshape(-1, 1)[rows]
        ends = np.cumsum([len(own) for _, own in experts])
        return np.split(outputs, ends[:-1])

    def _take_in(self, tokens: np.ndarray, outputs: np.ndarray) -> None:
        if (tokens[1:] == tokens[:-1]).any():  # a router may choose an expert twice for a token
            np.add.at(self._out, tokens, outputs)
        else:
            self._out[tokens] += outputs

    def result(self) -> np.ndarray:
        """[tokens, hidden]"""
        self.flush()
        return self._out
