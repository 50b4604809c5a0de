"""Searches weights for history eviction by replay. Pure: traces in, weights out."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.lfu import LfuEviction
from offload.replay.belady import belady_layer_loads, belady_pool_loads
from offload.replay.history_sweep import LRU_WEIGHTS, Variant, sweep_loads
from offload.replay.replay import replay
from offload.replay.trace import RoutingTrace

WINDOWS: Final = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
DECAYS: Final = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998)
_TERMS = ("count", "ema", "score", "recency")
_LARGEST = 4.0
_BATCH = 32
"""Candidates replayed at once: enough to share the work, few enough to stay in the processor's caches."""


class Trial(NamedTuple):
    """Weights tried, and the loads they made over all traces."""

    weights: HistoryWeights
    loads: int


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Loads over the decode steps of all traces, each from the same slots and initial contents."""

    best: HistoryWeights
    loads: int
    """With `best`."""
    default_loads: int
    """With the weights the search began from."""
    lru_loads: int
    lfu_loads: int
    belady_layer_loads: int
    """The bound for policies with slots per layer."""
    belady_pool_loads: int
    """The bound for any policy with the same bytes."""
    trials: tuple[Trial, ...]
    """Everything tried, in order."""


def tune_history(
    traces: Sequence[RoutingTrace],
    slots_per_layer: Sequence[int],
    *,
    initial: Sequence[Collection[int]] | None = None,
    start: HistoryWeights | None = None,
    num_random: int = 96,
    num_rounds: int = 3,
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> TuningResult:
    """Search the weights that make the fewest loads; among equals the one tried first, so that `start` is kept.

    First `num_random` weights drawn at random, then `num_rounds` of trying, around the best, each weight, window and
    decay alone; a round that finds nothing better is the last. Deterministic by `seed`. `on_progress(done, total)` is
    called before every batch on every trace, in replays, and stops the search by raising. Traces must be of one model.
    Raises ValueError for no traces, and as `sweep_loads` does.
    """
    if not traces:
        raise ValueError("there are no traces to tune on")
    decode = [trace.decode_only() for trace in traces]
    search = _Search(decode, slots_per_layer, initial, on_progress, num_random + 1 + num_rounds * _round_size())
    begin = start or HistoryWeights()
    draw = random.Random(seed)
    search.try_all([begin, *(_random_weights(draw) for _ in range(num_random))])
    for _ in range(num_rounds):
        before = search.best
        search.try_all(_around(before.weights))
        if search.best.loads == before.loads:
            break
    return TuningResult(
        best=search.best.weights,
        loads=search.best.loads,
        default_loads=search.trials[0].loads,
        lru_loads=search.loads([LRU_WEIGHTS])[0],
        lfu_loads=sum(replay(t, LfuEviction(t.geometry), slots_per_layer, initial=initial).loads for t in decode),
        belady_layer_loads=sum(sum(belady_layer_loads(t, slots_per_layer, initial)) for t in decode),
        belady_pool_loads=sum(belady_pool_loads(t, slots_per_layer, initial) for t in decode),
        trials=tuple(search.trials),
    )


class _Search:
    def __init__(
        self,
        traces: Sequence[RoutingTrace],
        slots_per_layer: Sequence[int],
        initial: Sequence[Collection[int]] | None,
        on_progress: Callable[[int, int], None],
        num_planned: int,
    ) -> None:
        self._traces, self._slots, self._initial = traces, slots_per_layer, initial
        self._on_progress, self._num_planned = on_progress, num_planned
        self.trials: list[Trial] = []

    @property
    def best(self) -> Trial:
        return min(self.trials, key=lambda trial: trial.loads)

    def try_all(self, candidates: Sequence[HistoryWeights]) -> None:
        """Replay those that were not tried yet."""
        tried = {trial.weights for trial in self.trials}
        fresh = [weights for weights in dict.fromkeys(candidates) if weights not in tried]
        for first in range(0, len(fresh), _BATCH):
            batch = fresh[first : first + _BATCH]
            self.trials += map(Trial, batch, self.loads(batch))

    def loads(self, candidates: Sequence[HistoryWeights]) -> list[int]:
        variants = [Variant(weights, self._slots, self._initial) for weights in candidates]
        totals = [0] * len(variants)
        num_traces, num_planned = len(self._traces), self._num_planned * len(self._traces)
        for number, trace in enumerate(self._traces):
            done = len(self.trials) * num_traces + number * len(variants)
            self._on_progress(min(done, num_planned), num_planned)
            loads = sweep_loads(trace, variants).sum(axis=1).tolist()
            totals = [total + more for total, more in zip(totals, loads, strict=True)]
        return totals


def _random_weights(draw: random.Random) -> HistoryWeights:
    """Random weights; each term is 0 with probability 1/4, so that the search can drop terms without effect."""
    terms = {name: 0.0 if draw.random() < 0.25 else round(_LARGEST * draw.random() ** 2, 2) for name in _TERMS}
    if not any(terms.values()):
        terms["recency"] = 1.0
    return HistoryWeights(**terms, window_steps=draw.choice(WINDOWS), ema_decay=draw.choice(DECAYS))


def _around(weights: HistoryWeights) -> list[HistoryWeights]:
    """Neighbours: these weights with one value changed."""
    near = []
    for name in _TERMS:
        value = getattr(weights, name)
        for changed in (0.0, value / 2, value * 1.5 or 0.25, value + 1):
            change: dict[str, Any] = {name: round(changed, 3)}
            near.append(replace(weights, **change))
    near += [replace(weights, window_steps=window) for window in WINDOWS]
    near += [replace(weights, ema_decay=decay) for decay in DECAYS]
    return near


def _round_size() -> int:
    return len(_around(HistoryWeights()))
