"""Tasks that the variants of a bench run: prompts with their exact greedy answers, routing, predictions and logits."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter

from engine.api import Message
from engine.arrays import Array, copied
from engine.backends.offloaded_model import OffloadedModel
from engine.chat.conversation import encode
from engine.config import EXACT, EngineConfig, SamplingConfig
from engine.errors import ConfigError
from engine.plan.budget import require_free
from engine.profiles.prompt_sets import shipped_domains, shipped_prompts
from engine.sampling.sampler import Sampler
from offload.counters import Counters
from offload.errors import WaitCancelled
from offload.replay.belady import belady_pool_loads
from offload.replay.trace import RoutingTrace
from offload.replay.trace_writer import TraceWriter
from offload.residency.warming import warm_layers
from offload.slot_groups import SlotGroups

_MAX_PROMPT_TOK = 160
_LAYERS_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt, the greedy answer to it, how it was routed, and the logits after every token of the answer."""

    domain: str
    prompt: list[int]
    answer: list[int]
    trace: RoutingTrace
    forecasts: list[list[dict[int, list[int]]]]
    """Per token of the answer but the last, per layer: by layer ahead, what was predicted for it."""
    logits: list[Array]
    """[vocab] each: after the prompt, and after every token of the answer but the last."""


@dataclass(frozen=True, slots=True)
class Run:
    """One variant on one task."""

    ttft_ms: float
    """Milliseconds to the first token; prefill uses the real link, also where decode's is emulated."""
    tpot_ms: list[float]
    counters: Counters
    """Of decode alone."""
    link_wait_ms: float
    initial: tuple[tuple[int, ...], ...]
    """Per layer, the experts resident when decode began."""
    is_exact: bool
    """The answer's tokens equal the task's."""
    best_bytes_per_s: float | None
    """The highest bandwidth measured; None where nothing was copied."""


@contextmanager
def engine_for_bench(engine: OffloadedModel, is_cancelled: Callable[[], bool]) -> Iterator[EngineConfig]:
    """Context for a bench that rebuilds the engine: sets EXACT, and lets `is_cancelled` stop a forward after any layer.

    Yields the configuration to start from. Afterwards the engine has its old configuration, slots and mode, and an
    empty expert cache. Raises BudgetError when memory is too small for all experts, and WaitCancelled in a forward.
    """
    require_free(engine.loaded.plan.geometry.expert_bytes_total, "Holding every expert, to measure the floor,")
    kept = engine.config, engine.budget.groups
    state, was_approx, after_layer = engine.state, engine.state.is_approx, engine.state.after_layer

    def stop_if_cancelled(layer: int) -> None:
        if is_cancelled():
            raise WaitCancelled("Stopped.")

    state.after_layer = stop_if_cancelled
    engine.set_mode(EXACT)
    try:
        yield replace(engine.config, memory_bytes=None, residency=None, mode=EXACT, link_bytes_per_s=None)
    finally:
        state.after_layer, state.is_approx = after_layer, was_approx
        engine.rebuild(*kept)


def make_all_resident(engine: OffloadedModel, config: EngineConfig) -> None:
    """Rebuilds the engine with a slot for every expert, and fills them."""
    slots = all_slots(engine)
    engine.rebuild(config, SlotGroups.per_layer(slots))
    warm_up(engine, first_experts(slots))


def first_experts(slots_per_layer: Sequence[int]) -> list[range]:
    """Per layer, experts 0, 1, ... for its slots; all experts where each has a slot."""
    return [range(num_slots) for num_slots in slots_per_layer]


def warm_up(engine: OffloadedModel, experts: Sequence[Sequence[int]]) -> None:
    """As `warm_layers`, over the real link also where it is emulated."""
    rate, engine.link.emulated_bytes_per_s = engine.link.emulated_bytes_per_s, None
    warm_layers(engine.cache, experts, engine.state.is_cancelled)
    engine.link.emulated_bytes_per_s = rate


def make_tasks(
    engine: OffloadedModel, config: EngineConfig, num_tok: int, per_domain: int, domains: Sequence[str] | None = None
) -> list[Task]:
    """Answers the first prompts of `domains` (by default, of every shipped one) with every expert resident. Rebuilds
    the engine and leaves it so."""
    make_all_resident(engine, config)
    room = engine.budget.context_tok - num_tok
    if room < 1:
        raise ConfigError(
            f"A context of {engine.budget.context_tok} tokens is too short for this bench.", "Give it more."
        )
    tasks = []
    for domain in domains or shipped_domains():
        for prompt in shipped_prompts(domain)[:per_domain]:
            ids = encode(engine.loaded.tokenizer, (Message("user", prompt),), engine.state.is_cancelled)[
                : min(_MAX_PROMPT_TOK, room)
            ]
            tasks.append(_task(engine, domain, ids, num_tok))
    return tasks


def _task(engine: OffloadedModel, domain: str, prompt: list[int], num_tok: int) -> Task:
    writer = TraceWriter("bench", domain, engine.loaded.plan.geometry)
    writer.begin_prompt()
    engine.state.recorder = writer
    forecasts: list[list[dict[int, list[int]]]] = []
    try:
        engine.decoder.cache.reset()
        logits = [engine.decoder.prefill(prompt, lambda done_tok: None)]
        answer = [int(logits[0].argmax())]
        with _recording_forecasts(engine, forecasts):
            while len(answer) < num_tok:
                forecasts.append([])
                logits += [copied(row) for row in engine.decoder.force(answer[-1:])]
                answer.append(int(logits[-1].argmax()))
    finally:
        engine.state.recorder = None
    return Task(domain, prompt, answer, writer.trace(), forecasts, logits)


@contextmanager
def _recording_forecasts(engine: OffloadedModel, forecasts: list[list[dict[int, list[int]]]]) -> Iterator[None]:
    """Context: after every layer's step, predicts the next layers and adds that to the last entry of `forecasts`."""
    lookahead, num_layers = engine.lookahead, len(engine.layers)

    def take(layer: int) -> None:
        lookahead.learn(layer)
        ahead = range(layer + 1, min(layer + 1 + _LAYERS_AHEAD, num_layers))
        forecasts[-1].append({at: lookahead.predict(layer, at) for at in ahead if lookahead.can_predict(layer, at)})

    with engine.state.watched(take):
        yield


def run_task(
    engine: OffloadedModel,
    config: EngineConfig,
    slots: Sequence[int] | SlotGroups,
    task: Task,
    warm: Sequence[Sequence[int]] | None = None,
) -> Run:
    """Runs the task under `config`, with `slots` per layer or in groups, from an empty expert cache or one warmed with
    `warm`. Rebuilds the engine. Raises WaitCancelled."""
    engine.rebuild(config, slots if isinstance(slots, SlotGroups) else SlotGroups.per_layer(slots))
    engine.set_mode(config.mode)
    if warm is not None:
        warm_up(engine, warm)
    rate, engine.link.emulated_bytes_per_s = (
        engine.link.emulated_bytes_per_s,
        None,
    )  # only decode uses the emulated link
    start = perf_counter()
    logits = engine.decoder.prefill(task.prompt, lambda done_tok: None)
    engine.link.emulated_bytes_per_s = rate
    tokens = engine.decoder.tokens(logits, Sampler(SamplingConfig(temperature=0.0)), len(task.answer))
    answer = [next(tokens)]
    last = perf_counter()
    ttft_ms, initial = (last - start) * 1000, engine.cache.residents()
    before, waited = engine.cache.total_counters(), engine.state.link_wait_s
    times = []
    for token in tokens:
        now = perf_counter()
        answer.append(token)
        times.append((now - last) * 1000)
        last = now
    engine.cache.check_integrity()
    waited_ms = (engine.state.link_wait_s - waited) * 1000
    return Run(
        ttft_ms,
        times,
        engine.cache.total_counters() - before,
        waited_ms,
        initial,
        answer == task.answer,
        engine.link.best_bytes_per_s,
    )


def all_slots(engine: OffloadedModel) -> tuple[int, ...]:
    """A slot for every expert."""
    return tuple(layer.num_experts for layer in engine.loaded.plan.geometry.layers)


def share_of_experts(engine: OffloadedModel, share: float) -> tuple[int, ...]:
    """Slots for that share of every layer's experts, at least k + 1."""
    layers = engine.loaded.plan.geometry.layers
    return tuple(max(layer.min_slots, round(share * layer.num_experts)) for layer in layers)


def layer_time_s(engine: OffloadedModel, task: Task) -> float:
    """Median seconds from one MoE layer's end to the next one's with every expert resident: what can hide a copy."""
    ends: list[tuple[int, float]] = []
    slots = all_slots(engine)
    with engine.state.watched(lambda layer: ends.append((layer, perf_counter()))):
        run_task(engine, replace(engine.config, link_bytes_per_s=None), slots, task, first_experts(slots))
    pairs = _steps_between(ends)
    return statistics.median(pairs) if pairs else 1e-3


def _steps_between(ends: list[tuple[int, float]]) -> list[float]:
    decode = ends[len(ends) // 2 :]
    return [b[1] - a[1] for a, b in pairwise(decode) if b[0] == a[0] + 1]


def run_interleaved(
    names: Sequence[str],
    tasks: Sequence[Task],
    run: Callable[[str, Task], Run],
    on_progress: Callable[[int, int], None],
) -> dict[str, list[Run]]:
    """Runs every variant on every task; every second task takes the variants in reverse order. By variant, its runs in
    the order of `tasks`. `on_progress` is told how many runs of how many are done."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number, task in enumerate(tasks):
        order = names if number % 2 == 0 else list(reversed(names))
        for place, name in enumerate(order, start=1):
            runs[name].append(run(name, task))
            on_progress(number * len(names) + place, len(names) * len(tasks))
    return runs


def best_bytes_per_s(runs: Mapping[str, Sequence[Run]]) -> float | None:
    """The highest bandwidth measured in any run; None where nothing was copied."""
    seen = [run.best_bytes_per_s for many in runs.values() for run in many if run.best_bytes_per_s is not None]
    return max(seen, default=None)


def fewest_loads(tasks: Sequence[Task], runs: Sequence[Run], slots: Sequence[int]) -> int:
    """The fewest loads any policy could make with these slots' bytes, from what was resident when decode began."""
    return sum(belady_pool_loads(task.trace, slots, run.initial) for task, run in zip(tasks, runs, strict=True))
