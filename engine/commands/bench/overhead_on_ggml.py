"""`bench overhead` on the ggml back end: what this engine adds to its own graphs, with every expert resident.

Measured in turn, round by round: whole decode steps; the same steps without cache, policies and prediction (what
calibration runs); the MoE part; its bare products; and for a safetensors checkpoint the steps of plain transformers on
the same weights. Of every step the time within graphs is counted, so that the rest is Python's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Final

from engine.api import Message
from engine.backends.ggml.backend import GgmlBackend
from engine.backends.offloaded_model import OffloadedModel
from engine.chat.conversation import encode
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
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from offload.errors import WaitCancelled

PYTHON_LIMIT: Final = 0.15
"""Whatever is not in graphs: at most this share of a step."""
PLAIN_LIMIT: Final = 0.35
"""A step, over one of plain transformers: at most this."""
_LABELS: Final = {
    "step ours": "decode step, this engine",
    "step bare": "decode step without cache and policies",
    "step plain": "decode step, plain transformers",
    "moe ours": "MoE part a layer, this engine",
    "moe bare": "bare products a layer",
}


def overhead_on_ggml(
    engine: OffloadedModel, num_rounds: int, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """`engine` has a slot for every expert, and nothing else to do. Raises WaitCancelled."""
    prompt = encode(engine.loaded.tokenizer, (Message("user", "Tell me about the sea."),), engine.state.is_cancelled)
    make_resident(engine)
    bench = _Bench(engine, prompt)
    times: dict[str, list[float]] = {name: [] for name in _LABELS}
    python_s = policy_s = 0.0
    for number in range(num_rounds):
        on_progress("rounds", number, num_rounds)
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        for name, measure in alternating(number, bench.measures()):
            before_s, computed_s = engine.state.overhead_s, bench.computed_s
            found = measure()
            times[name] += found
            if name == "step ours":
                policy_s += engine.state.overhead_s - before_s
                python_s += sum(found) - (bench.computed_s - computed_s)
    whole_s = sum(times["step ours"])
    measured = {name: kept for name, kept in times.items() if kept}
    return _outcome(engine, measured, python_s / whole_s, policy_s / whole_s)


class _Bench:
    """What is measured, each call a list of seconds."""

    def __init__(self, engine: OffloadedModel, prompt: list[int]) -> None:
        assert isinstance(engine.backend, GgmlBackend)
        self._engine, self._backend = engine, engine.backend
        self._plain: Iterator[float] | None = None
        if engine.loaded.folder.is_dir():
            self._plain = PlainTransformers(engine).steps(prompt)
            next(self._plain)
        self._inputs = recorded_inputs(engine, prompt)
        self._ours = own_steps(engine, prompt)
        next(self._ours)

    @property
    def computed_s(self) -> float:
        """Seconds in graphs, all of them, monotonic."""
        return self._backend.computed_s

    def measures(self) -> list[tuple[str, Callable[[], list[float]]]]:
        plain = [("step plain", self._plain_steps)] if self._plain is not None else []
        return [
            ("step ours", lambda: [next(self._ours) for _ in range(STEPS_PER_ROUND)]),
            *(("step bare", self._bare_steps), *plain),
            *(("moe ours", lambda: self._moe(False)), ("moe bare", lambda: self._moe(True))),
        ]

    def _plain_steps(self) -> list[float]:
        assert self._plain is not None
        return [next(self._plain) for _ in range(STEPS_PER_ROUND)]

    def _bare_steps(self) -> list[float]:
        """At the length that the answer has; what the cache holds of it stays."""
        cache, state, times = self._engine.decoder.cache, self._engine.state, []
        tokens = list(cache.tokens)
        state.is_calibrating = True
        try:
            for _ in range(STEPS_PER_ROUND):
                began_s = perf_counter()
                self._engine.backend.time_step(len(tokens))
                times.append(perf_counter() - began_s)
        finally:
            state.is_calibrating = False
            cache.tokens[:] = tokens
            cache.states.finish(len(tokens))
        return times

    def _moe(self, is_bare: bool) -> list[float]:
        state = self._engine.state
        state.is_decode, state.is_calibrating = True, is_bare
        began_s = perf_counter()
        try:
            for layer, (hidden, index, weights) in zip(self._engine.layers, self._inputs, strict=True):
                layer(hidden, index, weights)
        finally:
            state.is_calibrating = False
        return [(perf_counter() - began_s) / len(self._inputs)]


def _outcome(
    engine: OffloadedModel, times: Mapping[str, Sequence[float]], python_share: float, policy_share: float
) -> TaskOutcome:
    median = {name: statistics.median(values) for name, values in times.items()}
    ratios = {
        "step_over_bare": median["step ours"] / median["step bare"],
        "moe_over_bare_products": median["moe ours"] / median["moe bare"],
    }
    is_ok = python_share <= PYTHON_LIMIT and policy_share <= POLICY_LIMIT
    lines = []
    if "step plain" in median:
        ratios["step_over_transformers"] = median["step ours"] / median["step plain"]
        is_ok = is_ok and ratios["step_over_transformers"] <= PLAIN_LIMIT
        lines.append(
            f"decode step over plain transformers'  {ratios['step_over_transformers']:.2f}x (at most {PLAIN_LIMIT}x)"
        )
    threads = engine.backend.num_threads
    report: dict[str, object] = {
        "is_ok": is_ok,
        **ratios,
        "python_share": python_share,
        "policy_share": policy_share,
        "median_ms": {name: value * 1000 for name, value in median.items()},
        "p10_p90_ms": {name: [value * 1000 for value in deciles(values)] for name, values in times.items()},
        "num_layers": len(engine.layers),
        "threads": threads,
        "rounds": len(times["moe ours"]),
        "predicted_layers": engine.num_predicted_layers,
    }
    head = (
        f"{len(times['moe ours'])} rounds, interleaved, {threads} threads, {engine.backend.label}; every expert "
        f"resident, prediction on for {engine.num_predicted_layers} of {len(engine.layers) - 1} layers"
    )
    rows = (f"{_LABELS[name]:<40}{row(median[name], deciles(values))}" for name, values in times.items())
    ends = (
        f"step over itself without cache and policies  {ratios['step_over_bare']:.2f}x   MoE part over bare products  "
        f"{ratios['moe_over_bare_products']:.2f}x",
        *lines,
        f"outside of graphs: {python_share:.1%} of a step (at most {PYTHON_LIMIT:.0%}); of it cache, policies, "
        f"prediction and counting {policy_share:.1%} (at most {POLICY_LIMIT:.0%})",
    )
    return TaskOutcome(is_ok, report, (head, *rows, *ends))
