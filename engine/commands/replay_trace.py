"""`moe-chat trace replay`: the loads of eviction policies on recorded routing, and the lower bounds.

Light: reads a file and counts; needs neither torch nor the engine's process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.errors import ConfigError, UnusableFileError
from engine.profiles.store import ProfileStore
from offload.counters import Counters, ratio
from offload.errors import OffloadError, TraceError, WeightsError
from offload.geometry import Geometry
from offload.policies.eviction.history import HistoryWeights
from offload.replay.policy_comparison import (
    REPLAY_POLICIES,
    TUNED,
    Comparison,
    compare_policies,
    counters_as_dict,
)
from offload.replay.replay import PrefetchModel
from offload.replay.trace import RoutingTrace, load_trace

DEFAULT_RESIDENCY = 0.25
"""Share of each layer's experts that have slots, where neither slots nor residency is given."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay. Raises ConfigError for options that contradict each other."""

    path: Path
    num_slots: int | None = None
    """Slots of every layer; exclusive with `residency`."""
    residency: float | None = None
    policies: tuple[str, ...] = ()
    """Of REPLAY_POLICIES; (): all that can be replayed."""
    prefetch_depth: int = 1
    """Predicted experts prefetched per layer; 0: none."""
    hidden_copies: int = 1
    """Copies that finish while one layer computes."""

    def __post_init__(self) -> None:
        if self.num_slots is not None and self.residency is not None:
            raise ConfigError("--slots and --residency contradict each other.", "Give one of them.")
        unknown = [name for name in self.policies if name not in REPLAY_POLICIES]
        if unknown:
            raise ConfigError(
                f"Unknown eviction policy {unknown[0]!r}.", f"Choose some of {', '.join(REPLAY_POLICIES)}."
            )
        if self.prefetch_depth < 0 or self.hidden_copies < 0:
            raise ConfigError("A prefetch depth and hidden copies are not negative.", "Give 0 for none.")


def replay_trace(request: ReplayRequest, on_progress: OnTaskProgress) -> TaskOutcome:
    """Replays a trace under every policy. Raises UnusableFileError for a file that is not a trace, and ConfigError for
    slots that cannot hold a step."""
    try:
        return _replayed(request, on_progress)
    except OffloadError as error:
        raise UnusableFileError(error.title, error.message, error.hint) from error


def _replayed(request: ReplayRequest, on_progress: OnTaskProgress) -> TaskOutcome:
    trace = load_trace(request.path)
    if trace.is_prefill.all():
        raise TraceError(
            f"{request.path} holds no answers, only prompts: nothing is decoded.", "Record it with --tokens 16 or more."
        )
    slots = _slots(request, trace.geometry)
    tuned = _tuned(request, trace.model)
    policies = request.policies or tuple(name for name in REPLAY_POLICIES if name != TUNED or tuned is not None)
    prefetch = PrefetchModel(request.prefetch_depth, request.hidden_copies) if request.prefetch_depth else None
    comparison = compare_policies(trace, slots, policies, prefetch, tuned, on_progress)
    lines = (*_heading(request, trace, slots), *_lines(request, comparison, trace.geometry))
    return TaskOutcome(True, _report(request, trace, comparison), lines)


def _tuned(request: ReplayRequest, model: str) -> HistoryWeights | None:
    """The weights tuned for the trace's model. Missing or damaged ones are an error only if `tuned` was asked for."""
    if request.policies and TUNED not in request.policies:
        return None
    is_fingerprint = re.fullmatch("[0-9a-f]{32}", model)  # untrusted: read from a file, used as a folder name
    try:
        kept = ProfileStore(model).load_weights() if is_fingerprint else None
    except WeightsError:
        if request.policies:
            raise
        return None
    if kept is None and request.policies:
        raise ConfigError("No weights were tuned for the model of this trace.", "Tune some: moe-chat tune --keep")
    return kept.weights if kept is not None else None


def _slots(request: ReplayRequest, geometry: Geometry) -> tuple[int, ...]:
    """The same number, or the same share, in every layer; at most its experts. Raises ConfigError below k."""
    if request.num_slots is not None:
        wanted = [request.num_slots for _ in geometry.layers]
    else:
        share = request.residency if request.residency is not None else DEFAULT_RESIDENCY
        wanted = [int(share * layer.num_experts + 0.5) for layer in geometry.layers]
    slots = tuple(min(n, layer.num_experts) for n, layer in zip(wanted, geometry.layers, strict=True))
    top_k = max(layer.top_k for layer in geometry.layers)
    if any(n < layer.top_k for n, layer in zip(slots, geometry.layers, strict=True)):
        raise ConfigError(
            f"{min(slots)} slots a layer cannot hold a step: the router picks {top_k} experts at a time.",
            f"Give at least --slots {top_k}.",
        )
    return slots


def _report(request: ReplayRequest, trace: RoutingTrace, comparison: Comparison) -> dict[str, object]:
    return {
        "path": str(request.path),
        "model": trace.model,
        "domain": trace.domain,
        "num_prompts": trace.num_prompts,
        "num_decode_tok": int((~trace.is_prefill).sum()),
        "slots_per_layer": list(comparison.slots_per_layer),
        "policies": {name: _result_as_dict(found.layers) for name, found in comparison.results.items()},
        "prefetch": {
            "depth": request.prefetch_depth,
            "hidden_copies": request.hidden_copies,
            "recall_per_layer": list(comparison.recall),
            "policies": {name: _result_as_dict(found.layers) for name, found in comparison.prefetched.items()},
        }
        if comparison.has_predictions
        else None,
        "belady_layer_loads": list(comparison.belady_layer_loads),
        "belady_pool_loads": comparison.belady_pool_loads,
    }


def _result_as_dict(layers: Sequence[Counters]) -> dict[str, object]:
    total = Counters.total(layers)
    return {"total": counters_as_dict(total), "layers": [counters_as_dict(layer) for layer in layers]}


def _heading(request: ReplayRequest, trace: RoutingTrace, slots: Sequence[int]) -> tuple[str, ...]:
    shown = str(slots[0]) if len(set(slots)) == 1 else f"{min(slots)}-{max(slots)}"
    widest = max(layer.num_experts for layer in trace.geometry.layers)
    written = int((~trace.is_prefill).sum())
    return (
        f"{request.path}: {trace.domain or 'no domain'}, {trace.num_prompts} prompts, {written} tokens written",
        f"{shown} slots of {widest} experts in each of {len(slots)} MoE layers, empty at first",
    )


def _lines(request: ReplayRequest, comparison: Comparison, geometry: Geometry) -> tuple[str, ...]:
    return (
        "",
        f"{'policy':<26}{'loads':>10}{'hit rate':>10}{'x bound':>9}",
        *(_policy_line(name, found.total, comparison) for name, found in comparison.results.items()),
        _bound_line("lower bound (Belady)", sum(comparison.belady_layer_loads), comparison),
        _bound_line("lower bound, one pool", comparison.belady_pool_loads, comparison),
        *_prefetch_lines(request, comparison),
        "",
        *_layer_lines(comparison, geometry),
    )


def _policy_line(name: str, total: Counters, comparison: Comparison) -> str:
    return f"{name:<26}{total.loads:>10,}{_percent(total.hit_rate):>10}{_times_bound(total.loads, comparison):>9}"


def _bound_line(name: str, loads: int, comparison: Comparison) -> str:
    return f"{name:<26}{loads:>10,}{'':>10}{_times_bound(loads, comparison):>9}"


def _times_bound(loads: int, comparison: Comparison) -> str:
    bound = comparison.belady_pool_loads
    return f"{loads / bound:.2f}" if bound else "–"


def _prefetch_lines(request: ReplayRequest, comparison: Comparison) -> tuple[str, ...]:
    if not comparison.has_predictions:
        return ("", "No predictions were recorded: nothing to replay a prefetch with.")
    rates = [rate for rate in comparison.recall if rate is not None]
    mean = f"recall of the recorded predictions: {sum(rates) / len(rates):.1%} on average over {len(rates)} layers"
    if not comparison.prefetched:
        return ("", mean)
    return (
        "",
        f"{mean}; {request.prefetch_depth} fetched a layer, {request.hidden_copies} hidden by its compute",
        f"{'policy, prefetched':<26}{'loads':>10}{'hit rate':>10}"
        f"{'useful':>9}{'late':>9}{'wasted':>9}{'cancelled':>11}",
        *(_prefetched_line(name, found.total) for name, found in comparison.prefetched.items()),
    )


def _prefetched_line(name: str, total: Counters) -> str:
    counts = f"{total.prefetch_useful:>9,}{total.prefetch_late:>9,}{total.prefetch_wasted:>9,}"
    return f"{name:<26}{total.loads:>10,}{_percent(total.hit_rate):>10}{counts}{total.prefetch_cancelled:>11,}"


def _layer_lines(comparison: Comparison, geometry: Geometry) -> tuple[str, ...]:
    names = "".join(f"{name:>10}" for name in comparison.results)
    head = f"{'layer':>5}{'slots':>7}{names}{'bound':>10}{'recall':>9}"
    rows = [_layer_line(layer, shape.layer_number, comparison) for layer, shape in enumerate(geometry.layers)]
    return ("hit rate by layer", head, *rows)


def _layer_line(layer: int, number: int, comparison: Comparison) -> str:
    counted = [found.layers[layer] for found in comparison.results.values()]
    rates = "".join(f"{_percent(counters.hit_rate):>10}" for counters in counted)
    missed = ratio(comparison.belady_layer_loads[layer], counted[0].routed)
    bound = _percent(None if missed is None else 1 - missed)
    slots, recall = comparison.slots_per_layer[layer], _percent(comparison.recall[layer])
    return f"{number:>5}{slots:>7}{rates}{bound:>10}{recall:>9}"


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1%}"
