"""Recall of later routers that are asked by graphs: on the ggml back end, of the residual after a layer's attention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from engine.backends.ggml.lookahead import GgmlLookahead
from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.recall import Recall
from engine.commands.bench.workload import Task
from engine.lookahead.correction import MeanErrorCorrection


class _LogitsRecall:
    """See RecallState."""

    def __init__(self, top_k: int, best: Callable[[Any], list[int]]) -> None:
        self._best, self._correction = best, MeanErrorCorrection(best, stride=1)
        self.plain, self.corrected = Recall(top_k), Recall(top_k)

    def add(self, predicted: Any, actual: Any, chosen: list[int]) -> None:
        """One token: the logits predicted for the layer, its own, and what it chose."""
        self.plain.add(self._best(predicted), chosen)
        self.corrected.add(self._best(self._correction.correct(predicted)), chosen)
        if self._correction.count_step():
            self._correction.learn(actual)


class RecallOfGraphs:
    """Predicts every layer at every token of answers, from up to `farthest` layers before it."""

    def __init__(self, engine: OffloadedModel, lookahead: GgmlLookahead, farthest: int) -> None:
        self._engine, self._lookahead, self._farthest = engine, lookahead, farthest
        self._waiting: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        """By layer, the distance and the logits of predictions that wait for its own."""
        self.recalls: dict[tuple[int, int], _LogitsRecall] = {}
        """By (layers ahead, predicted layer)."""

    def predict_answer(self, task: Task) -> None:
        """Decodes the task's answer. Raises WaitCancelled."""
        engine = self._engine
        engine.decoder.cache.reset()
        engine.decoder.prefill(task.prompt, lambda done_tok: None)
        with engine.state.watched(self._take):
            for _ in engine.decoder.force(task.answer[:-1]):
                self._waiting.clear()

    def _take(self, layer: int) -> None:
        """The layer's experts are computed and not yet in the residual: compares, then asks the layers behind."""
        at, actual = self._engine.layers[layer], self._lookahead.logits
        for distance, predicted in self._waiting.pop(layer, ()):
            key = distance, layer
            if key not in self.recalls:
                self.recalls[key] = _LogitsRecall(at.geometry.top_k, self._lookahead.best(layer))
            self.recalls[key].add(predicted, actual, at.last_experts)
        for ahead in range(layer + 1, min(layer + 1 + self._farthest, len(self._engine.layers))):
            self._waiting[ahead].append((ahead - layer, self._lookahead.logits_ahead(ahead).copy()))
