"""Which hidden state tells best, and how far ahead, what a later layer's router will choose: recall@k, layer by layer.

Asked of layer l about layer l+d, by l+d's own router: the normed MoE input of l as it is; the residual after l's
attention, through l+d's norm; the residual after l's MoE, through l+d's norm, which comes too late to hide a copy
under l's experts. Each as it is, and with its mean error taken off (`ScoreShift`: learned as it goes, and judged before
it learns).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.workload import Task, borrowed, make_tasks
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.lookahead.correction import ScoreShift

NORMED, AFTER_ATTENTION, AFTER_MOE = "normed MoE input", "residual after attention", "residual after the MoE"
_FARTHEST = 4


@dataclass(slots=True)
class _Tally:
    """How many of the experts chosen were among the k predicted."""

    found: int = 0
    chosen: int = 0

    def add(self, predicted: Sequence[int], chosen: Sequence[int]) -> None:
        self.found += len(set(predicted).intersection(chosen))
        self.chosen += len(chosen)

    @property
    def recall(self) -> float:
        return self.found / max(self.chosen, 1)


class _Asked:
    """One hidden state of one layer, asked about one layer ahead."""

    def __init__(self, num_experts: int, top_k: int) -> None:
        self.shift = ScoreShift(num_experts, top_k, stride=1)
        self.plain, self.shifted = _Tally(), _Tally()

    def judge(self, scores: torch.Tensor, truth: torch.Tensor, chosen: Sequence[int], top_k: int) -> None:
        self.plain.add(scores.topk(top_k)[1][0].tolist(), chosen)
        self.shifted.add(self.shift.apply(scores).topk(top_k)[1][0].tolist(), chosen)
        if self.shift.take_due():
            self.shift.learn(truth)


def bench_prediction(
    engine: OffloadedModel, is_quick: bool, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """With every expert resident, outside the budget; the engine is as it was afterwards. Raises WaitCancelled."""
    asked: dict[tuple[str, int, int], _Asked] = {}
    with borrowed(engine, is_cancelled) as base:
        on_progress("answering with every expert resident", 0, 1)
        tasks = make_tasks(engine, replace(base, prefetch="none"), 16 if is_quick else 48, 1 if is_quick else 3)
        with _block_outputs(engine) as outputs:
            for number, task in enumerate(tasks):
                on_progress("asking", number, len(tasks))
                _ask(engine, task, outputs, asked)
    return _outcome(asked, len(engine.layers), sum(len(task.answer) - 1 for task in tasks))


@contextmanager
def _block_outputs(engine: OffloadedModel) -> Iterator[dict[int, torch.Tensor]]:
    """By MoE layer, what its decoder block last returned: the residual after the MoE."""
    outputs: dict[int, torch.Tensor] = {}
    handles = []

    def keeper(layer: int) -> Callable[[Any, Any, Any], None]:
        def keep(module: Any, args: Any, output: Any) -> None:
            outputs[layer] = output[0] if isinstance(output, tuple) else output

        return keep

    for layer, withheld in enumerate(engine.loaded.modules):
        parts = withheld.name.split(".")
        end = next((at for at, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
        block = engine.loaded.model.get_submodule(".".join(parts[: end + 1]))
        handles.append(block.register_forward_hook(keeper(layer)))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _ask(
    engine: OffloadedModel,
    task: Task,
    outputs: dict[int, torch.Tensor],
    asked: dict[tuple[str, int, int], _Asked],
) -> None:
    engine.decoder.cache.reset()
    engine.decoder.prefill(task.prompt, lambda done_tok: None)
    for _ in engine.decoder.force(task.answer[:-1]):
        for layer in range(len(engine.layers)):
            for ahead in range(layer + 1, min(layer + 1 + _FARTHEST, len(engine.layers))):
                for name, scores in _scores(engine, layer, ahead, outputs):
                    shape = engine.layers[ahead].geometry
                    state = asked.setdefault((name, ahead - layer, ahead), _Asked(shape.num_experts, shape.top_k))
                    state.judge(scores, _truth(engine, ahead), engine.layers[ahead].last_experts, shape.top_k)


def _scores(
    engine: OffloadedModel, layer: int, ahead: int, outputs: dict[int, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    lookahead = engine.lookahead
    own, far, hidden = lookahead.predictors[layer], lookahead.predictors[ahead], lookahead.inputs[layer]
    if own is None or far is None or far.ranking is None or hidden is None:
        return
    yield NORMED, far.ranking.scores(own.normed(hidden).view(1, -1))
    yield AFTER_ATTENTION, far.scores(hidden)
    if outputs[layer].numel() == hidden.numel():
        yield AFTER_MOE, far.scores(outputs[layer])


def _truth(engine: OffloadedModel, layer: int) -> torch.Tensor:
    predictor, hidden = engine.lookahead.predictors[layer], engine.lookahead.inputs[layer]
    assert predictor is not None, "it was asked about"
    assert hidden is not None, "it was asked about"
    return predictor.scores(hidden)


def _outcome(asked: dict[tuple[str, int, int], _Asked], num_layers: int, num_tok: int) -> TaskOutcome:
    report: dict[str, object] = {"num_tok": num_tok}
    lines = [
        f"recall@k of what a later layer's router chooses, over {num_tok} written tokens, and its worst layer",
        f"  {'asked of layer l':<28}{'about':<8}{'plain':>8}{'worst':>16}{'shifted':>10}{'worst':>16}",
    ]
    for name in (NORMED, AFTER_ATTENTION, AFTER_MOE):
        for distance in range(1, _FARTHEST + 1):
            states = {ahead: state for (kind, far, ahead), state in asked.items() if (kind, far) == (name, distance)}
            if states:
                report[f"{name}, l+{distance}"] = _as_dict(states)
                lines.append(_line(name, distance, states))
    if not asked:
        lines.append(f"  no router of the {num_layers} layers can be asked out of its place")
    return TaskOutcome(bool(asked), report, tuple(lines))


def _as_dict(states: dict[int, _Asked]) -> dict[str, object]:
    return {
        "plain": {layer: state.plain.recall for layer, state in sorted(states.items())},
        "shifted": {layer: state.shifted.recall for layer, state in sorted(states.items())},
    }


def _line(name: str, distance: int, states: dict[int, _Asked]) -> str:
    text = f"  {name:<28}{'l+' + str(distance):<8}"
    for recalls in (
        {layer: state.plain.recall for layer, state in states.items()},
        {layer: state.shifted.recall for layer, state in states.items()},
    ):
        worst = min(recalls, key=lambda layer: recalls[layer])
        text += f"{statistics.fmean(recalls.values()):8.1%}{f'{recalls[worst]:.1%} (layer {worst})':>18}"
    return text
