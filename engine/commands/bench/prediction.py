"""`bench prediction`: recall@k of a later layer's choice, by the hidden state it is predicted from and the distance.

The router of layer l+d runs on a hidden state of layer l: the normed MoE input of l as it is; the residual after l's
attention, through l+d's norm; or the residual after l's MoE, through l+d's norm (too late to hide a copy under l's
experts). On ggml the residual after attention alone is asked, as the engine does. Each is measured plain and with its
mean error subtracted (`MeanErrorCorrection`, which learns from a token only after predicting it). For the hidden state
that the engine uses, recall is also given by rank.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from engine.backends.ggml.backend import GgmlBackend
from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.backend import require_transformers
from engine.commands.bench.graph_recall import RecallOfGraphs
from engine.commands.bench.recall import Recall, RecallState
from engine.commands.bench.workload import Task, engine_for_bench, make_tasks
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.lookahead.correction import MeanErrorCorrection
from engine.lookahead.forms import describe_forms
from engine.lookahead.predictor import Predictor

NORMED, AFTER_ATTENTION, AFTER_MOE = "normed MoE input", "residual after attention", "residual after the MoE"
FARTHEST = 4


class Truth(NamedTuple):
    """What a layer chose for a token, and the input of its own feeding norm."""

    chosen: Sequence[int]
    hidden: torch.Tensor


class _SourceRecall:
    """Recall of predicting one layer from one hidden state of an earlier layer."""

    def __init__(self, predictor: Predictor, top_k: int) -> None:
        ranking = predictor.ranking
        self._predictor = predictor
        self._correction = MeanErrorCorrection(ranking.best_of_logits, stride=1) if ranking else None
        self.plain = Recall(top_k)
        self.corrected = Recall(top_k) if ranking else None
        """None where the router module itself predicts: it gives no logits to correct."""

    def add(self, normed: torch.Tensor | None, hidden: torch.Tensor, truth: Truth) -> None:
        """One token: predicted from `normed`, the router's input, where it is given, else from `hidden`."""
        ranking = self._predictor.ranking
        if ranking is None or self._correction is None or self.corrected is None:
            self.plain.add(self._predictor.choose(hidden), truth.chosen)
            return
        logits = self._predictor.logits(hidden) if normed is None else ranking.product(normed.view(1, -1))
        self.plain.add(ranking.best_of_logits(logits), truth.chosen)
        self.corrected.add(ranking.best_of_logits(self._correction.correct(logits)), truth.chosen)
        if self._correction.count_step():
            self._correction.learn(self._predictor.logits(truth.hidden))


_WHAT = "The recall from every hidden state"

Recalls = dict[tuple[str, int, int], RecallState]
"""By (hidden state, layers ahead, predicted layer)."""


def bench_prediction(
    engine: OffloadedModel, is_quick: bool, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """Runs with every expert resident, outside the budget, and restores the engine afterwards. Raises WaitCancelled."""
    recalls: Recalls = {}
    with engine_for_bench(engine, is_cancelled) as base:
        on_progress("answering with every expert resident", 0, 1)
        tasks = make_tasks(engine, replace(base, prefetch="none"), 16 if is_quick else 48, 1 if is_quick else 3)
        if isinstance(engine.backend, GgmlBackend):
            own = RecallOfGraphs(engine, engine.backend.lookahead, FARTHEST)
            for number, task in enumerate(tasks):
                on_progress("predicting", number, len(tasks))
                own.predict_answer(task)
            recalls.update({(AFTER_ATTENTION, *key): state for key, state in own.recalls.items()})
            return _outcome(recalls, engine, sum(len(task.answer) - 1 for task in tasks))
        with _block_outputs(engine) as outputs:
            for number, task in enumerate(tasks):
                on_progress("predicting", number, len(tasks))
                _predict_answer(engine, task, outputs, recalls)
    return _outcome(recalls, engine, sum(len(task.answer) - 1 for task in tasks))


@contextmanager
def _block_outputs(engine: OffloadedModel) -> Iterator[dict[int, torch.Tensor]]:
    """By MoE layer, what its decoder block last returned: the residual after the MoE."""
    outputs: dict[int, torch.Tensor] = {}
    handles = []

    def keeper(layer: int) -> Callable[[Any, Any, Any], None]:
        def keep(module: Any, args: Any, output: Any) -> None:
            outputs[layer] = output[0] if isinstance(output, tuple) else output

        return keep

    loaded = require_transformers(engine.backend, _WHAT).loaded
    for layer, withheld in enumerate(loaded.modules):
        parts = withheld.name.split(".")
        end = next((at for at, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
        block = loaded.model.get_submodule(".".join(parts[: end + 1]))
        handles.append(block.register_forward_hook(keeper(layer)))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _predict_answer(engine: OffloadedModel, task: Task, outputs: dict[int, torch.Tensor], recalls: Recalls) -> None:
    """Decodes the task's answer, and predicts every layer at every token."""
    engine.decoder.cache.reset()
    engine.decoder.prefill(task.prompt, lambda done_tok: None)
    for _ in engine.decoder.force(task.answer[:-1]):
        for layer in range(len(engine.layers)):
            for ahead in range(layer + 1, min(layer + 1 + FARTHEST, len(engine.layers))):
                _predict_layer(engine, layer, ahead, outputs, recalls)


def _predict_layer(
    engine: OffloadedModel, layer: int, ahead: int, outputs: dict[int, torch.Tensor], recalls: Recalls
) -> None:
    """Adds one token's predictions of layer `ahead`, one from each hidden state of `layer`."""
    lookahead = require_transformers(engine.backend, _WHAT).lookahead
    own, far = lookahead.predictors[layer], lookahead.predictors[ahead]
    hidden, far_hidden = lookahead.inputs[layer], lookahead.inputs[ahead]
    if own is None or far is None or hidden is None or far_hidden is None:
        return
    truth = Truth(engine.layers[ahead].last_experts, far_hidden)
    sources: list[tuple[str, torch.Tensor | None, torch.Tensor]] = [(AFTER_ATTENTION, None, hidden)]
    if far.ranking is not None:
        sources.append((NORMED, own.normed(hidden), hidden))
    if outputs[layer].numel() == hidden.numel():
        sources.append((AFTER_MOE, None, outputs[layer]))
    for name, normed, state in sources:
        key = name, ahead - layer, ahead
        recall = recalls.setdefault(key, _SourceRecall(far, engine.layers[ahead].geometry.top_k))
        assert isinstance(recall, _SourceRecall)
        recall.add(normed, state, truth)


def _outcome(recalls: Recalls, engine: OffloadedModel, num_tok: int) -> TaskOutcome:
    report: dict[str, object] = {"num_tok": num_tok, "forms": describe_forms(engine.lookahead.forms()[1:])}
    lines = [
        f"recall@k of what a later layer's router chooses, over {num_tok} written tokens, and its worst layer",
        f"  {report['forms']}",
        f"  {'from, in layer l':<28}{'of':<8}{'plain':>8}{'worst':>18}{'corrected':>11}{'worst':>18}",
    ]
    for name in (NORMED, AFTER_ATTENTION, AFTER_MOE):
        for distance in range(1, FARTHEST + 1):
            states = {ahead: state for (kind, far, ahead), state in recalls.items() if (kind, far) == (name, distance)}
            if states:
                report[f"{name}, l+{distance}"] = _as_dict(states)
                lines.append(_line(name, distance, states))
    near = {ahead: state for (kind, far, ahead), state in recalls.items() if (kind, far) == (AFTER_ATTENTION, 1)}
    lines.extend(_by_rank(near))
    if not recalls:
        lines.append(f"  no router of the {len(engine.layers)} layers can be run ahead: nothing is predicted")
    return TaskOutcome(bool(recalls), report, tuple(lines))


def _as_dict(states: dict[int, RecallState]) -> dict[str, object]:
    return {
        "plain": {layer: state.plain.rates for layer, state in sorted(states.items())},
        "corrected": {
            layer: state.corrected.rates for layer, state in sorted(states.items()) if state.corrected is not None
        },
    }


def _line(name: str, distance: int, states: dict[int, RecallState]) -> str:
    text = f"  {name:<28}{'l+' + str(distance):<8}"
    plain = {layer: state.plain.at_k for layer, state in states.items()}
    corrected = {layer: state.corrected.at_k for layer, state in states.items() if state.corrected is not None}
    for recalls, width in ((plain, 8), (corrected, 11)):
        if not recalls:
            text += f"{'-':>{width}}{'':>18}"
            continue
        worst = min(recalls, key=lambda layer: recalls[layer])
        text += f"{statistics.fmean(recalls.values()):{width}.1%}{f'{recalls[worst]:.1%} (layer {worst})':>18}"
    return text


def _by_rank(states: dict[int, RecallState]) -> Iterator[str]:
    """Lines for what the engine uses: the residual after attention, one layer ahead."""
    if not states:
        return
    ranks = sorted({rank for state in states.values() for rank in state.plain.rates})
    heads = "".join(f"{f'first {rank}':>16}" for rank in ranks)
    yield f"share of the first predicted that were chosen, {AFTER_ATTENTION}, l+1, plain / corrected"
    yield f"  {'layer':<8}{heads}"
    for layer, state in sorted(states.items()):
        corrected = state.corrected.rates if state.corrected is not None else {}
        cells = ((state.plain.rates.get(rank), corrected.get(rank)) for rank in ranks)
        yield f"  {layer:<8}" + "".join(f"{f'{_percent(plain)} / {_percent(better)}':>16}" for plain, better in cells)


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"
