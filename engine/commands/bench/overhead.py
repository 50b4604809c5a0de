"""`bench overhead`: this engine against plain transformers in one run, with every expert resident.

Prediction, policies and counters run all the same. Measured in turn, round by round: the MoE part (our layer against
the library's `grouped_mm` on the same inputs), the bare matrix products on the same weights, and whole decode steps
over the same kind of cache. A last row is the overhead of a synthetic layer in which half of the chosen experts miss.
Of the ggml back end other things are measured: see `overhead_on_ggml`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional as F
from transformers.integrations.moe import grouped_mm_experts_forward

from engine.api import Message
from engine.backends.ggml.backend import GgmlBackend
from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.backend import require_transformers
from engine.chat.conversation import encode
from engine.commands.bench.overhead_on_ggml import overhead_on_ggml
from engine.commands.bench.overhead_parts import (
    POLICY_LIMIT,
    STEPS_PER_ROUND,
    PlainTransformers,
    alternating,
    deciles,
    make_resident,
    own_steps,
    recorded_inputs,
    row,
)
from engine.commands.bench.synthetic_layer import NUM_EXPERTS, TOP_K, LayerOverhead, measure_layer_overhead
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.plan.budget import require_free
from offload.errors import WaitCancelled

MOE_LIMIT, TPOT_LIMIT = 0.9, 1.0
"""At most this share of the library's time: the MoE part, and the whole step."""
_LABELS = {
    "moe ours": "MoE part a layer, this engine",
    "moe plain": "MoE part a layer, grouped_mm",
    "moe bare": "bare matrix products a layer",
    "step ours": "decode step, this engine",
    "step plain": "decode step, plain transformers",
}


WHAT = "The comparison with plain transformers"


def bench_overhead(
    base: OffloadedModel, num_rounds: int, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """Loads the model twice more, whole and offloaded with every expert resident. Raises WaitCancelled."""
    plan = base.loaded.plan
    whole_bytes = plan.resident_bytes + plan.geometry.expert_bytes_total + base.budget.workspace_bytes
    require_free(2 * whole_bytes, "Holding the model twice, with every expert,")
    on_progress("loading", 0, num_rounds)
    kept_threads = torch.get_num_threads()
    config = replace(
        base.config, memory_bytes=None, residency=1.0, mode="exact", link_bytes_per_s=None, context_tok=512
    )
    engine = OffloadedModel(config, base.loaded.folder, lambda progress: None, is_cancelled, always_predict=True)
    try:
        torch.set_num_threads(engine.threads.num_threads)
        if isinstance(engine.backend, GgmlBackend):
            return overhead_on_ggml(engine, num_rounds, on_progress, is_cancelled)
        return _run(engine, num_rounds, on_progress, is_cancelled)
    finally:
        engine.close()
        torch.set_num_threads(kept_threads)


def _run(
    engine: OffloadedModel, num_rounds: int, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    plain = PlainTransformers(engine)
    prompt = encode(engine.loaded.tokenizer, (Message("user", "Tell me about the sea."),), engine.state.is_cancelled)
    make_resident(engine)
    ours, theirs = own_steps(engine, prompt), plain.steps(prompt)
    next(ours), next(theirs)
    moe_calls = _MoeCalls(engine, plain.model, prompt)
    times: dict[str, list[float]] = {name: [] for name in _LABELS}
    policy_s = 0.0
    with torch.inference_mode():
        for number in range(num_rounds):
            on_progress("rounds", number, num_rounds)
            if is_cancelled():
                raise WaitCancelled("Stopped.")
            for name, steps in alternating(number, [("step ours", ours), ("step plain", theirs)]):
                before_s = engine.state.overhead_s
                times[name] += [next(steps) for _ in range(STEPS_PER_ROUND)]
                policy_s += engine.state.overhead_s - before_s
            for name, call in alternating(number, moe_calls.named()):
                times[name].append(call())
    policy_share = policy_s / sum(times["step ours"])
    medians = {name: statistics.median(values) for name, values in times.items()}
    return _outcome(engine, medians, times, policy_share, measure_layer_overhead(is_cancelled))


class _MoeCalls:
    """One decode step's MoE calls of every layer, recorded once and replayed three ways; each returns seconds a
    layer."""

    def __init__(self, engine: OffloadedModel, plain: Any, prompt: list[int]) -> None:
        self._engine = engine
        self._inputs = recorded_inputs(engine, prompt)
        self._plain = [
            plain.get_submodule(withheld.name) for withheld in require_transformers(engine.backend, WHAT).loaded.modules
        ]
        self._bare = [
            self._weights(module, index) for module, (_, index, _) in zip(self._plain, self._inputs, strict=True)
        ]

    @staticmethod
    def _weights(module: Any, index: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        up = module.gate_up_proj if module.has_gate else module.up_proj
        pairs = [(up[expert], module.down_proj[expert]) for expert in index[0].tolist()]
        return [(a.t(), b.t()) for a, b in pairs] if module.is_transposed else pairs

    def named(self) -> list[tuple[str, Callable[[], float]]]:
        return [("moe ours", self._ours), ("moe plain", self._library), ("moe bare", self._products)]

    def _ours(self) -> float:
        self._engine.state.is_decode = True
        start = perf_counter()
        for layer, (hidden, index, weights) in zip(self._engine.layers, self._inputs, strict=True):
            layer(hidden, index, weights)
        return (perf_counter() - start) / len(self._inputs)

    def _library(self) -> float:
        start = perf_counter()
        for module, (hidden, index, weights) in zip(self._plain, self._inputs, strict=True):
            grouped_mm_experts_forward(module, hidden, index, weights)
        return (perf_counter() - start) / len(self._inputs)

    def _products(self) -> float:
        start = perf_counter()
        for pairs, (hidden, _, _) in zip(self._bare, self._inputs, strict=True):
            for up, down in pairs:
                projected = F.linear(hidden, up)
                F.linear(projected[:, : down.shape[-1]], down)
        return (perf_counter() - start) / len(self._inputs)


def _outcome(
    engine: OffloadedModel,
    median: dict[str, float],
    times: dict[str, list[float]],
    policy_share: float,
    synthetic: LayerOverhead,
) -> TaskOutcome:
    moe_ratio, tpot_ratio = median["moe ours"] / median["moe plain"], median["step ours"] / median["step plain"]
    bare_ratio = median["moe ours"] / median["moe bare"]
    is_ok = moe_ratio <= MOE_LIMIT and tpot_ratio <= TPOT_LIMIT and policy_share <= POLICY_LIMIT
    spread = {name: deciles(values) for name, values in times.items()}
    missing_us, resident_us = synthetic.half_missing_s * 1e6, synthetic.all_resident_s * 1e6
    report: dict[str, object] = {
        "is_ok": is_ok,
        "moe_over_grouped_mm": moe_ratio,
        "moe_over_bare_products": bare_ratio,
        "tpot_over_transformers": tpot_ratio,
        "policy_share": policy_share,
        "synthetic_layer_overhead_us": {"all_resident": resident_us, "half_missing": missing_us},
        "median_ms": {name: value * 1000 for name, value in median.items()},
        "p10_p90_ms": {name: [values[0] * 1000, values[-1] * 1000] for name, values in spread.items()},
        "num_layers": len(engine.layers),
        "threads": torch.get_num_threads(),
        "rounds": len(times["moe ours"]),
        "predicted_layers": engine.num_predicted_layers,
    }
    lines = (
        f"{len(times['moe ours'])} rounds, interleaved, {torch.get_num_threads()} threads; every expert resident, "
        f"prediction on for {engine.num_predicted_layers} of {len(engine.layers) - 1} layers",
        *(f"{label:<35}{row(median[name], spread[name])}" for name, label in _LABELS.items()),
        f"MoE part over grouped_mm  {moe_ratio:.2f}x (at most {MOE_LIMIT}x)   over bare products  {bare_ratio:.2f}x",
        f"TPOT over transformers    {tpot_ratio:.2f}x (at most {TPOT_LIMIT}x)",
        f"cache, policies, prediction, counting: {policy_share:.1%} of a step (at most {POLICY_LIMIT:.0%})",
        f"overhead of a synthetic layer, {NUM_EXPERTS} experts, k = {TOP_K}: {missing_us:.0f} us with half of them "
        f"missing, {resident_us:.0f} us with none",
    )
    return TaskOutcome(is_ok, report, lines)
