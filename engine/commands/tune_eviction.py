"""`moe-chat tune`: searches weights of history eviction for a model, and measures them on held-out prompts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from engine.api import TuneEviction
from engine.backends.offloaded_model import OffloadedModel
from engine.checkpoint.fingerprint import fingerprint
from engine.commands.record_trace import traces_of_model
from engine.commands.routing_recording import record_routing
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.errors import ConfigError
from engine.profiles.prompt_sets import shipped_domains, shipped_prompts
from engine.profiles.store import ProfileStore
from offload.errors import WaitCancelled
from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.tuned_weights import Evidence, TunedWeights
from offload.replay.held_out import CheckedTuning, PolicyLoads, tune_and_check
from offload.replay.trace import RoutingTrace
from offload.slot_groups import count_in_words

_ROWS = {
    "default": "history, default weights",
    "tuned": "history, tuned weights",
    "lru": "lru",
    "lfu": "lfu",
    "belady_layer": "lower bound (Belady), these slots",
    "belady_pool": "lower bound (Belady), one pool",
}


def tune_eviction(
    engine: OffloadedModel,
    command: TuneEviction,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
    clock: Callable[[], float] = time.time,
) -> TaskOutcome:
    """Searches weights at the present slots and measures them on held-out prompts. Saves them if asked to, and if they
    load less there than the defaults. Records traces first where none are given.

    Raises ConfigError where every expert has a slot, TraceError, WeightsError, WaitCancelled.
    """

    def progress(stage: str, done: int, total: int) -> None:
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        on_progress(stage, done, total)

    slots = engine.cache.slots_per_layer
    if not engine.cache.slot_groups.is_per_layer:
        raise ConfigError(
            "Weights are tuned for slots of each layer's own, and all layers share one pool.",
            "Tune under a strategy such as moe-core, or with --slots uniform.",
        )
    if all(n >= layer.num_experts for n, layer in zip(slots, engine.loaded.plan.geometry.layers, strict=True)):
        raise ConfigError(
            "Every expert has a slot: nothing is ever evicted.", "Tune for a smaller budget, such as --residency 25%."
        )
    traces = traces_of_model(engine, command.trace_paths) or _record(engine, command, progress)
    checked = tune_and_check(traces, slots, on_progress=progress)
    is_better = checked.held_out.tuned < checked.held_out.default
    is_kept = command.is_kept and is_better
    store = ProfileStore(engine.fingerprint)
    if is_kept:
        store.save_weights(_kept(engine.fingerprint, clock(), slots, checked))
    report = _report(checked, slots) | {"is_kept": is_kept, "path": str(store.weights_path) if is_kept else None}
    ending = _ending(is_better, command.is_kept, store.weights_path)
    return TaskOutcome(True, report, (*_lines(checked, slots), "", ending))


def reset_eviction(folder: Path) -> TaskOutcome:
    """Deletes the weights tuned for the model in this folder: the defaults are used again."""
    store = ProfileStore(fingerprint(folder))
    is_deleted = store.delete_weights()
    said = f"The tuned weights are deleted ({store.weights_path})." if is_deleted else "No weights were kept."
    return TaskOutcome(True, {"is_deleted": is_deleted}, (f"{said} History eviction uses its defaults.",))


def _record(engine: OffloadedModel, command: TuneEviction, progress: OnTaskProgress) -> list[RoutingTrace]:
    """One trace of every shipped domain."""
    traces = []
    for domain in shipped_domains():
        prompts = shipped_prompts(domain)[: command.num_prompts]

        def progress_of_domain(stage: str, done: int, total: int, domain: str = domain) -> None:
            progress(f"{stage} {domain}", done, total)

        traces.append(
            record_routing(engine, engine.fingerprint, domain, prompts, command.num_new_tok, progress_of_domain)
        )
    return traces


def _kept(model: str, created_s: float, slots: Sequence[int], checked: CheckedTuning) -> TunedWeights:
    return TunedWeights(
        model, created_s, checked.weights, tuple(slots), checked.tuned_on_evidence, checked.held_out_evidence
    )


def _report(checked: CheckedTuning, slots: Sequence[int]) -> dict[str, object]:
    return {
        "weights": asdict(checked.weights),
        "slots_per_layer": list(slots),
        "num_trials": checked.num_trials,
        "tuned_on": {"prompts": checked.num_tuned_on, **checked.tuned_on._asdict()},
        "held_out": {"prompts": checked.num_held_out, **checked.held_out._asdict()},
        "held_out_by_domain": {name: loads._asdict() for name, loads in checked.held_out_by_domain.items()},
    }


def _lines(checked: CheckedTuning, slots: Sequence[int]) -> tuple[str, ...]:
    tuned_on, held_out = checked.tuned_on_evidence, checked.held_out_evidence
    return (
        f"{checked.num_trials} sets of weights replayed on {tuned_on.prompts} prompts, the best one checked on "
        f"{held_out.prompts} held-out prompts; {count_in_words(slots)} slots a layer",
        f"{'loads':<32}{'tuned on':>10}{'held out':>10}",
        *(
            f"{label:<32}{getattr(checked.tuned_on, name):>10,}{getattr(checked.held_out, name):>10,}"
            for name, label in _ROWS.items()
        ),
        "",
        *(_domain_line(name, loads) for name, loads in sorted(checked.held_out_by_domain.items())),
        "",
        f"best: {weights_in_words(checked.weights)}",
        _gain_in_words(checked),
    )


def _domain_line(domain: str, loads: PolicyLoads) -> str:
    saved = Evidence(0, loads.default, loads.tuned).saved_rate
    lru = Evidence(0, loads.lru, loads.tuned).saved_rate
    name = domain or "(no domain)"
    return f"held out, {name:<20}{saved:+7.1%} loads saved over the defaults, {lru:+7.1%} over lru"


def weights_in_words(weights: HistoryWeights) -> str:
    """`count 1, ema 2, score 0.5, recency 1, window 256 steps, decay 0.8`."""
    terms = ", ".join(f"{name} {getattr(weights, name):g}" for name in ("count", "ema", "score", "recency"))
    return f"{terms}, window {weights.window_steps} steps, decay {weights.ema_decay:g}"


def _gain_in_words(checked: CheckedTuning) -> str:
    """The loads saved on the tuned and on the held-out prompts, the share lost to overfitting, and in which domains."""
    tuned_on, held_out = checked.tuned_on_evidence.saved_rate, checked.held_out_evidence.saved_rate
    if tuned_on <= 0:
        return "Nothing loads less than the defaults."
    gains = f"It saves {tuned_on:.1%} of the loads on the tuning prompts and {held_out:.1%} on held-out ones"
    if held_out <= 0:
        return f"{gains}: all of the gain is overfitting."
    domains = checked.held_out_by_domain.values()
    num_better = sum(loads.tuned < loads.default for loads in domains)
    lost = 1 - held_out / tuned_on
    overfitting = f"; {lost:.0%} of the gain is overfitting" if lost > 0 else ""
    return f"{gains}, in {num_better} of {len(domains)} domains{overfitting}."


def _ending(is_better: bool, is_wanted: bool, path: Path) -> str:
    if not is_better:
        return "Not kept: the defaults do as well on prompts the search has not seen."
    if not is_wanted:
        return "Not kept; --keep keeps it for this model."
    return f"Kept in {path}: used from the next load on. moe-chat tune --reset goes back to the defaults."
