"""From a router's logits to experts and weights, and what experts are ranked by."""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX_OF_CHOSEN, RouterSpec

_ROWS_AT_ONCE = 256
"""Tokens of a prompt: what ranking takes beside is small then."""


class Routing:
    """One MoE layer's choice. `correction`: added to the scores that experts are ranked by, float32 [experts]."""

    def __init__(self, spec: RouterSpec, top_k: int, correction: np.ndarray | None) -> None:
        self._spec, self._correction = spec, correction
        self.top_k = top_k
        self._ranks_as_logits = correction is None and spec.num_groups == spec.num_groups_used

    def choose(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """logits float32 [tokens, experts] -> (experts int64 [tokens, k], best first, weights float32 [tokens, k])."""
        if len(logits) > _ROWS_AT_ONCE:
            starts = range(0, len(logits), _ROWS_AT_ONCE)
            experts, weights = zip(*(self.choose(logits[at : at + _ROWS_AT_ONCE]) for at in starts), strict=True)
            return np.concatenate(experts), np.concatenate(weights)
        scoring = self._spec.scoring
        ranked = logits if scoring == SOFTMAX_OF_CHOSEN or self._ranks_as_logits else self.selected_by(logits)
        experts = _largest(ranked, self.top_k)
        return experts, self.weigh(logits, experts)

    def weigh(self, logits: np.ndarray, experts: np.ndarray) -> np.ndarray:
        """The weights, float32 [tokens, k], of chosen experts: integers [tokens, k]."""
        spec, chosen = self._spec, _values_of(logits, experts)
        if spec.scoring == SIGMOID:
            weights = _sigmoid(chosen)
            if spec.normalises:
                weights /= np.add.reduce(weights, axis=1, keepdims=True) + np.float32(1e-20)
        elif spec.scoring == SOFTMAX_OF_CHOSEN or spec.normalises:
            weights = _softmax(chosen)  # as the chosen ones' share in a softmax of all
        else:
            weights = _values_of(_softmax(logits), experts)
        return weights if spec.scale == 1.0 else weights * np.float32(spec.scale)

    @property
    def ranks_without_groups(self) -> bool:
        """Whether the best experts are those of the highest scores of all."""
        return self._spec.num_groups == self._spec.num_groups_used

    def ranked_by(self, logits: np.ndarray) -> np.ndarray:
        """What experts are ranked by, correction included and groups left aside: float32 [tokens, experts]."""
        return self._corrected(self._scores(logits))

    def selected_by(self, logits: np.ndarray) -> np.ndarray:
        """As `ranked_by`; -inf for experts of groups that cannot be chosen."""
        return self._eligible(self.ranked_by(logits))

    def best(self, logits: np.ndarray) -> list[int]:
        """The experts that logits [1, experts] choose, best first."""
        ranked = logits if self._ranks_as_logits else self.selected_by(logits)
        experts: list[int] = _largest(ranked, self.top_k)[0].tolist()
        return experts

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        if self._spec.scoring != SIGMOID:
            return _softmax(logits)
        return _sigmoid(logits)

    def _corrected(self, scores: np.ndarray) -> np.ndarray:
        return scores if self._correction is None else scores + self._correction

    def _eligible(self, ranked: np.ndarray) -> np.ndarray:
        spec = self._spec
        if spec.num_groups == spec.num_groups_used:
            return ranked
        grouped = ranked.reshape(len(ranked), spec.num_groups, -1)
        of_groups = -np.sort(-grouped, axis=2)[:, :, : spec.group_best].sum(axis=2)
        is_left_out = np.ones(of_groups.shape, bool)
        np.put_along_axis(is_left_out, _largest(of_groups, spec.num_groups_used), values=False, axis=1)
        return np.where(is_left_out[:, :, None], np.float32(-np.inf), grouped).reshape(ranked.shape)


def _softmax(rows: np.ndarray) -> np.ndarray:
    raised = np.exp(rows - np.maximum.reduce(rows, axis=1, keepdims=True))
    shares: np.ndarray = raised / np.add.reduce(raised, axis=1, keepdims=True)
    return shares


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    gates: np.ndarray = np.float32(1) / (np.float32(1) + np.exp(-logits))
    return gates


def _values_of(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Of every row the values at its `places`: [rows, k]. One row, as decode has, is quicker on its own."""
    return rows[:, places[0]] if len(rows) == 1 else np.take_along_axis(rows, places, axis=1)


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` largest of every row are, the largest first; of equal ones the first. int64 [rows, count]"""
    return (-scores).argsort(axis=1, kind="stable")[:, :count]


class LogitsTap:
    """What a MoE layer is told of its router in the running forward (see `experts.router_tap`)."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self.logits: np.ndarray | None = None
        """float32 [tokens, experts], set by the decoder before the layer is called."""

    def scores(self) -> np.ndarray | None:
        """The current token's score per expert, float32 [experts]; None in prefill."""
        if self.logits is None or len(self.logits) != 1:
            return None
        scores: np.ndarray = self._routing.ranked_by(self.logits)[0]
        return scores

    def all_scores(self) -> np.ndarray | None:
        """The scores of every token of the running forward, float32 [tokens, experts]."""
        return None if self.logits is None else self._routing.ranked_by(self.logits)

    def selection_scores(self) -> np.ndarray | None:
        """What the router ranked for the current token, -inf for experts it could not choose: float32 [experts]."""
        if self.logits is None or len(self.logits) != 1:
            return None
        selected: np.ndarray = self._routing.selected_by(self.logits)[0]
        return selected
