"""Compares eviction policies with each other and with the bounds, on one trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from offload.counters import Counters
from offload.policies.eviction import HISTORY_POLICIES, EvictionPolicy, make_eviction
from offload.policies.eviction.history import HistoryWeights
from offload.replay.belady import belady_layer_loads, belady_pool_loads
from offload.replay.belady_eviction import BeladyEviction
from offload.replay.replay import PrefetchModel, ReplayResult, replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

TUNED: Final = "tuned"
"""History eviction with weights that were tuned for the model."""
BELADY: Final = "belady"
"""Belady's MIN under the cache's rules: the running step is locked, and every expert is loaded (no bypass)."""
REPLAY_POLICIES: Final = (*HISTORY_POLICIES, TUNED, BELADY)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Decode steps only, from empty slots."""

    slots_per_layer: tuple[int, ...]
    results: dict[str, ReplayResult]
    """By policy, without prefetch."""
    prefetched: dict[str, ReplayResult]
    """By policy, with the recorded predictions prefetched; empty where none were recorded, or asked for."""
    belady_layer_loads: tuple[int, ...]
    """Per layer, the fewest loads of any policy with these slots."""
    belady_pool_loads: int
    """The fewest loads of any policy with as many bytes in one pool."""
    recall: tuple[float | None, ...]
    """Per layer: chosen experts that were among the k predicted, over chosen; None where nothing was predicted."""

    @property
    def has_predictions(self) -> bool:
        return any(rate is not None for rate in self.recall)


def compare_policies(
    trace: RoutingTrace,
    slots_per_layer: Sequence[int],
    policies: Sequence[str],
    prefetch: PrefetchModel | None = None,
    tuned: HistoryWeights | None = None,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Comparison:
    """Replays every policy of REPLAY_POLICIES that is asked for. `tuned`: the weights of TUNED.

    `on_progress(stage, done, total)` is called before each replay, and stops it all by raising. Raises ValueError for
    an unknown policy, and when the slots cannot hold a step.
    """
    decode = trace.decode_only()
    recall = prediction_recall(decode)
    has_predictions = prefetch is not None and any(rate is not None for rate in recall)
    models = (None, prefetch) if has_predictions else (None,)
    found: dict[PrefetchModel | None, dict[str, ReplayResult]] = {model: {} for model in models}
    for number, model in enumerate(models):
        for done, name in enumerate(policies, start=number * len(policies)):
            on_progress(name if model is None else f"{name}, prefetched", done, len(models) * len(policies))
            policy = _make(name, decode, tuned)
            found[model][name] = replay(decode, policy, slots_per_layer, prefetch=model)
    on_progress("bounds", 0, 1)
    return Comparison(
        tuple(slots_per_layer),
        found[None],
        found[prefetch] if has_predictions else {},
        belady_layer_loads(decode, slots_per_layer),
        belady_pool_loads(decode, slots_per_layer),
        recall,
    )


def prediction_recall(trace: RoutingTrace) -> tuple[float | None, ...]:
    """See `Comparison.recall`; steps without a prediction are left out."""
    predicted, chosen = trace.predicted, trace.ids
    is_predicted = (predicted != NO_EXPERT).any(axis=2)
    hits = (chosen[:, :, :, None] == predicted[:, :, None, :]).any(axis=3) & (chosen != NO_EXPERT)
    num_hits = np.where(is_predicted, hits.sum(axis=2), 0).sum(axis=0)
    num_chosen = np.where(is_predicted, (chosen != NO_EXPERT).sum(axis=2), 0).sum(axis=0)
    return tuple(int(hit) / int(of) if of else None for hit, of in zip(num_hits, num_chosen, strict=True))


def counters_as_dict(counters: Counters) -> dict[str, object]:
    """What a replay counted, as JSON-serialisable values."""
    return {name: getattr(counters, name) for name in Counters.__slots__} | {
        "loads": counters.loads,
        "hit_rate": counters.hit_rate,
    }


def _make(name: str, trace: RoutingTrace, tuned: HistoryWeights | None) -> EvictionPolicy:
    if name == BELADY:
        return BeladyEviction(trace)
    if name != TUNED:
        return make_eviction(name, trace.geometry)
    if tuned is None:
        raise ValueError("no weights were tuned for the model of this trace")
    return make_eviction("history", trace.geometry, tuned)
