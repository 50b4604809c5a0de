"""Tunes eviction weights on some prompts, and measures them on held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from offload.errors import TraceError
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.tuned_weights import Evidence
from offload.replay.belady import belady_layer_loads, belady_pool_loads
from offload.replay.replay import replay
from offload.replay.trace import RoutingTrace
from offload.replay.tuning import TuningResult, tune_history

HELD_OUT_EVERY: Final = 3
"""One prompt in so many is held out."""

OnProgress = Callable[[str, int, int], None]
"""Told the stage, and how many of how many steps of it are done."""


class PolicyLoads(NamedTuple):
    """Loads over the same decode steps, each from empty slots."""

    default: int
    tuned: int
    lru: int
    lfu: int
    belady_layer: int
    """The bound with slots per layer."""
    belady_pool: int
    """The bound with as many bytes in one pool."""


@dataclass(frozen=True, slots=True)
class CheckedTuning:
    """Weights tuned on some prompts, and their loads on held-out ones."""

    weights: HistoryWeights
    tuned_on: PolicyLoads
    held_out: PolicyLoads
    num_tuned_on: int
    """Prompts."""
    num_held_out: int
    held_out_by_domain: dict[str, PolicyLoads]
    num_trials: int

    @property
    def tuned_on_evidence(self) -> Evidence:
        return Evidence(self.num_tuned_on, self.tuned_on.default, self.tuned_on.tuned)

    @property
    def held_out_evidence(self) -> Evidence:
        return Evidence(self.num_held_out, self.held_out.default, self.held_out.tuned)


def tune_and_check(
    traces: Sequence[RoutingTrace],
    slots_per_layer: Sequence[int],
    *,
    num_random: int = 96,
    num_rounds: int = 3,
    seed: int = 0,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> CheckedTuning:
    """Searches on two thirds of every trace's prompts (`tune_history`) and replays the others.

    `on_progress(stage, done, total)` stops it by raising. Raises TraceError when there are too few prompts to hold any
    out, or nothing was decoded; ValueError as `tune_history` does.
    """
    seen = [_part(trace, is_held_out=False) for trace in traces]
    unseen = [_part(trace, is_held_out=True) for trace in traces]
    if not _num_steps(seen) or not _num_steps(unseen):
        raise TraceError(
            f"There are {sum(trace.num_prompts for trace in traces)} prompts with answers, too few to hold one out.",
            f"Give at least {HELD_OUT_EVERY} a file, with answers of some tokens.",
        )
    result = tune_history(
        [trace for trace in seen if trace.num_steps],
        slots_per_layer,
        num_random=num_random,
        num_rounds=num_rounds,
        seed=seed,
        on_progress=lambda done, total: on_progress("searching weights", done, total),
    )
    by_domain = _held_out_loads(unseen, result.best, slots_per_layer, on_progress)
    return CheckedTuning(
        weights=result.best,
        tuned_on=_searched(result),
        held_out=_sum(by_domain.values()),
        num_tuned_on=sum(trace.num_prompts for trace in seen),
        num_held_out=sum(trace.num_prompts for trace in unseen),
        held_out_by_domain=by_domain,
        num_trials=len(result.trials),
    )


def _held_out_loads(
    traces: Sequence[RoutingTrace],
    weights: HistoryWeights,
    slots_per_layer: Sequence[int],
    on_progress: OnProgress,
) -> dict[str, PolicyLoads]:
    """By domain, over all of its traces."""
    by_domain: dict[str, PolicyLoads] = {}
    for number, trace in enumerate(traces):
        on_progress("held-out prompts", number, len(traces))
        loads = _loads(trace, weights, slots_per_layer)
        before = by_domain.get(trace.domain)
        by_domain[trace.domain] = loads if before is None else _sum((before, loads))
    return by_domain


def _sum(loads: Iterable[PolicyLoads]) -> PolicyLoads:
    return PolicyLoads(*map(sum, zip(*loads, strict=True)))


def _part(trace: RoutingTrace, is_held_out: bool) -> RoutingTrace:
    """The last prompt of every three, or the others."""
    numbers = [n for n in range(trace.num_prompts) if (n % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == is_held_out]
    return trace.with_prompts(numbers).decode_only()


def _num_steps(traces: Sequence[RoutingTrace]) -> int:
    return sum(trace.num_steps for trace in traces)


def _searched(result: TuningResult) -> PolicyLoads:
    return PolicyLoads(
        result.default_loads,
        result.loads,
        result.lru_loads,
        result.lfu_loads,
        result.belady_layer_loads,
        result.belady_pool_loads,
    )


def _loads(trace: RoutingTrace, weights: HistoryWeights, slots: Sequence[int]) -> PolicyLoads:
    def replayed(policy: str, of: HistoryWeights | None = None) -> int:
        return replay(trace, make_eviction(policy, trace.geometry, of), slots).loads

    return PolicyLoads(
        default=replayed("history"),
        tuned=replayed("history", weights),
        lru=replayed("lru"),
        lfu=replayed("lfu"),
        belady_layer=sum(belady_layer_loads(trace, slots)),
        belady_pool=belady_pool_loads(trace, slots),
    )
