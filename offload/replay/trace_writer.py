"""Records routing while a model runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offload.geometry import Geometry
from offload.replay.trace import NO_EXPERT, RoutingTrace, max_experts, max_top_k

_FIRST_STEPS = 256


class TraceWriter:
    """Collects one trace. `begin` opens the rows of one forward, `record` fills them layer by layer.

    A step counts once its last layer is recorded: the next `begin` drops the rows of a forward that was given up. For
    one thread. `record` costs a few microseconds.
    """

    def __init__(
        self, model: str, domain: str, geometry: Geometry, *, has_scores: bool = True, has_predictions: bool = True
    ) -> None:
        """`model`: its fingerprint. Without scores the trace is far smaller, and policies that use scores cannot be
        replayed.

        Callers of `record` need not collect scores or predictions that the writer does not have.
        """
        self._model, self._domain, self._geometry = model, domain, geometry
        self._last_layer = geometry.num_layers - 1
        self.has_scores, self.has_predictions = has_scores, has_predictions
        self._num_steps = 0
        self._begin = self._end = 0
        self._prompt_starts: list[int] = []
        rows = (_FIRST_STEPS, geometry.num_layers)
        self._ids = np.empty((*rows, max_top_k(geometry)), np.uint16)
        self._predicted = np.empty_like(self._ids)
        self._scores = np.empty((*rows, max_experts(geometry) if has_scores else 0), np.float16)
        self._is_prefill = np.zeros(_FIRST_STEPS, np.bool_)

    @property
    def num_steps(self) -> int:
        """Complete steps recorded."""
        return self._num_steps

    def begin_prompt(self) -> None:
        """The steps from here on belong to a new prompt."""
        self._prompt_starts.append(self._num_steps)

    @property
    def num_prompts(self) -> int:
        """Prompts begun."""
        return len(self._prompt_starts)

    def drop_prompt(self) -> None:
        """Forget the prompt that was begun last, with its steps."""
        self._num_steps = self._prompt_starts.pop()

    def begin(self, num_tok: int = 1, *, is_prefill: bool = False) -> None:
        """A forward of so many tokens starts."""
        self._begin, self._end = self._num_steps, self._num_steps + num_tok
        if self._end > len(self._ids):
            self._grow(max(self._end, 2 * len(self._ids)))
        self._ids[self._begin : self._end] = NO_EXPERT
        self._predicted[self._begin : self._end] = NO_EXPERT
        self._scores[self._begin : self._end] = np.nan
        self._is_prefill[self._begin : self._end] = is_prefill

    def record(
        self,
        layer: int,
        ids: Sequence[int] | np.ndarray,
        scores: np.ndarray | None = None,
        predicted: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        """What a layer routed: `ids` [tok, n <= k], `scores` [tok, num_experts], `predicted` [tok, n] (cut at k).

        For a forward of one token the first dimension may be left out. The last layer completes the forward's steps.
        """
        rows: int | slice = self._begin
        if self._end - self._begin != 1:
            rows = slice(self._begin, self._end)
            ids = np.asarray(ids)
            self._ids[rows, layer, : ids.shape[-1]] = ids
            if predicted is not None:
                predicted = np.asarray(predicted)[:, : self._ids.shape[2]]
                self._predicted[rows, layer, : predicted.shape[-1]] = predicted
        else:
            if isinstance(ids, np.ndarray):
                ids = ids.reshape(-1)
            self._ids[rows, layer, : len(ids)] = ids
            if predicted is not None and len(predicted):
                predicted = predicted.reshape(-1) if isinstance(predicted, np.ndarray) else predicted
                predicted = predicted[: self._ids.shape[2]]
                self._predicted[rows, layer, : len(predicted)] = predicted
        if scores is not None and self.has_scores:
            with np.errstate(over="ignore"):  # some routers mask with the lowest float32, here -inf
                self._scores[rows, layer, : scores.shape[-1]] = scores
        if layer == self._last_layer:
            self._num_steps = self._end

    def trace(self, num_steps: int | None = None) -> RoutingTrace:
        """A copy of what was recorded so far, or of its first `num_steps` steps.

        Raises TraceError when ids were recorded that the model does not have.
        """
        steps = slice(self._num_steps if num_steps is None else min(num_steps, self._num_steps))
        return RoutingTrace(
            self._model,
            self._domain,
            self._geometry,
            _distinct(self._ids[steps]),
            self._predicted[steps].copy(),
            self._scores[steps].copy() if self.has_scores else None,
            self._is_prefill[steps].copy(),
            np.array(self._prompt_starts, dtype=np.int64),
        )

    def _grow(self, num_steps: int) -> None:
        """Enlarges the arrays to `num_steps` rows; complete steps are kept."""
        for name in ("_ids", "_predicted", "_scores", "_is_prefill"):
            old = getattr(self, name)
            new = np.empty((num_steps, *old.shape[1:]), old.dtype)
            new[: self._num_steps] = old[: self._num_steps]
            setattr(self, name, new)


def _distinct(ids: np.ndarray) -> np.ndarray:
    """A copy without duplicate experts in a row: some routers choose by token id, and may name an expert twice."""
    ids = ids.copy()
    for place in range(1, ids.shape[-1]):
        again = (ids[..., :place] == ids[..., place : place + 1]).any(axis=-1)
        ids[..., place][again] = NO_EXPERT
    order = np.argsort(ids == NO_EXPERT, axis=-1, kind="stable")
    return np.take_along_axis(ids, order, axis=-1)
