"""Verifies layer by layer: recorded calls run through the library's experts function, one layer in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers.integrations.moe import grouped_mm_experts_forward

from engine.arrays import Array, copied
from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.backend import require_transformers
from engine.backends.transformers.stored_weights import WithheldModule
from engine.commands.task_outcome import OnTaskProgress
from engine.commands.verify.comparison import ComparisonResult
from engine.experts.layer import MoeLayer
from offload.errors import WaitCancelled


@dataclass(slots=True)
class LayerCalls:
    """The recorded calls of one MoE layer: inputs and output, (hidden, index, weights, out)."""

    calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)


def layer_by_layer(
    engine: OffloadedModel,
    prompts: list[list[int]],
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> ComparisonResult:
    """Answers the shortest prompt and checks every call of every layer. Raises WaitCancelled."""
    prompt = min(prompts, key=len)
    checks = [LayerCalls() for _ in engine.layers]
    with RecordingCalls(engine, checks):
        engine.greedy_ids(prompt, min(num_tok, 8))
    equal = calls = 0
    for number, check in enumerate(checks):
        on_progress("checking layers", number, len(checks))
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        right = _library_agrees(engine, require_transformers(engine.backend, _WHAT).loaded.modules[number], check)
        equal += sum(right)
        calls += len(right)
    report: dict[str, object] = {"layers": len(checks), "calls": calls, "calls_equal": equal}
    line = f"{equal} of {calls} calls of {len(checks)} MoE layers equal the library's experts function bit for bit."
    return equal == calls, report, ("Layer by layer, each MoE layer streamed whole:", line)


_WHAT = "A check layer by layer"


class RecordingCalls:
    """Context: records every MoE layer's calls in `checks` while it is entered."""

    def __init__(self, engine: OffloadedModel, checks: list[LayerCalls]) -> None:
        self._engine, self._checks = engine, checks

    def __enter__(self) -> None:
        for number, layer in enumerate(self._engine.layers):
            self._engine.backend.bind(number, _RecordedLayer(layer, self._checks[number]))  # type: ignore[arg-type]

    def __exit__(self, *exc: object) -> None:
        for number, layer in enumerate(self._engine.layers):
            self._engine.backend.bind(number, layer)


class _RecordedLayer:
    """A MoE layer that keeps what it is called with. To a decoder it is a layer that takes no forecast."""

    takes_forecast = False

    def __init__(self, layer: MoeLayer, check: LayerCalls) -> None:
        self._layer, self._check = layer, check

    def __call__(self, hidden: Array, index: Array, weights: Array, **options: bool) -> Array:
        out = self._layer(hidden, index, weights, **options)
        self._check.calls.append((copied(hidden), copied(index), copied(weights), copied(out)))
        return out


def _library_agrees(engine: OffloadedModel, withheld: WithheldModule, check: LayerCalls) -> list[bool]:
    """Per recorded call: whether the library's experts function gives the same output. Loads the module's weights for
    this, and removes them afterwards."""
    module, model = withheld.module, require_transformers(engine.backend, _WHAT).loaded.model
    try:
        for name, parameter in withheld.parameters.items():
            rows = [
                parameter.convert([part.read() for part in parts], parts, model).to(parameter.dtype)
                for _, parts in sorted(parameter.parts.items())
            ]
            module._parameters[name] = torch.nn.Parameter(torch.stack(rows), requires_grad=False)
        with torch.inference_mode():
            return [torch.equal(grouped_mm_experts_forward(module, *call[:3]), call[3]) for call in check.calls]
    finally:
        for name in withheld.parameters:
            module._parameters[name] = None
