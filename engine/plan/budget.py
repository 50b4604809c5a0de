"""The byte budget of a model before anything is loaded: from headers and a meta-device model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.backends.transformers.loading import LoadStopped, ModelPlan, load_model
from engine.checkpoint.fingerprint import fingerprint
from engine.commands.task_outcome import TaskOutcome
from engine.config import AUTO, FULL_LAYER, NONUNIFORM, EngineConfig, format_bytes
from engine.plan import machine
from engine.profiles.store import ProfileStore
from offload.budget import BudgetPlan, BudgetRequest, plan_budget
from offload.errors import BudgetError
from offload.geometry import Geometry
from offload.nonuniform_budget import with_moved_slots
from offload.policies.slot_planning.curve import HitRateCurve, mean_curves

STAGING_SLOTS = 3
_RUNTIME_MARGIN_BYTES = 176 << 20
"""What torch comes to hold while it works: mostly oneDNN's compiled kernels, as many as the client allows."""


def budget_for(config: EngineConfig, plan: ModelPlan, model_fingerprint: str) -> BudgetPlan:
    """Splits the budget that `config` asks for. Raises BudgetError with the smallest number that works."""
    budget = _uniform_budget(config, plan)
    curves = profiled_curves(model_fingerprint, plan.geometry) if config.slots == NONUNIFORM else ()
    return with_moved_slots(budget, plan.geometry, curves) if curves else budget


def profiled_curves(model_fingerprint: str, geometry: Geometry) -> tuple[HitRateCurve, ...]:
    """Per layer, the mean hit-rate curve over the model's profiles; empty without any that can be used.

    The mean, since slots are shared out once and the domain may change: which layers are short of slots is much the
    same on every domain ("MoE-CORE: Coordinated Expert Offload": the same layers are the troughs on every workload).
    """
    store = ProfileStore(model_fingerprint)
    profiles = [profile for profile in map(store.usable, store.names()) if profile is not None]
    fitting = [profile for profile in profiles if profile.geometry == geometry and profile.num_decode_tok]
    return mean_curves([profile.curves() for profile in fitting]) if fitting else ()


def _uniform_budget(config: EngineConfig, plan: ModelPlan) -> BudgetPlan:
    return plan_budget(
        BudgetRequest(
            geometry=plan.geometry,
            memory_bytes=config.memory_bytes,
            residency=config.residency,
            runtime_bytes=_runtime_bytes(),
            resident_bytes=plan.resident_bytes,
            kv_bytes_per_tok=plan.kv.bytes_per_tok,
            kv_fixed_bytes=plan.kv.fixed_bytes,
            workspace_bytes=plan.workspace_bytes,
            staging_slots=STAGING_SLOTS,
            context_tok=config.context_tok,
            model_context_tok=plan.model_context_tok,
            available_bytes=machine.available_bytes(),
            layer_staging=None if config.prefill == AUTO else config.prefill == FULL_LAYER,
        )
    )


def _runtime_bytes() -> int:
    """The process without a model. Part of the margin may be in use when a second model is planned: what was said to be
    enough the first time must be enough then."""
    return max(_first_rss_bytes() + _RUNTIME_MARGIN_BYTES, machine.rss_bytes() + _RUNTIME_MARGIN_BYTES // 4)


@functools.cache
def _first_rss_bytes() -> int:
    return machine.rss_bytes()


def slots_in_words(slots_per_layer: Sequence[int]) -> str:
    """`8`, or `3-5` where layers differ."""
    low, high = min(slots_per_layer), max(slots_per_layer)
    return str(low) if low == high else f"{low}-{high}"


def require_free(num_bytes: int, what: str) -> None:
    """Raises BudgetError unless so many bytes more could be held now. For what runs outside the budget."""
    free_bytes = machine.available_bytes() - machine.rss_bytes()
    if num_bytes > free_bytes:
        raise BudgetError(
            f"{what} takes {format_bytes(num_bytes)}, and {format_bytes(free_bytes)} are free.",
            "Close other programs, or use a smaller model.",
        )


class _Planned(LoadStopped):
    """Carries the plans out of a load that goes no further."""

    def __init__(self, model: ModelPlan, budget: BudgetPlan) -> None:
        super().__init__()
        self.model, self.budget = model, budget


def plan_only(config: EngineConfig, folder: Path, is_cancelled: Callable[[], bool]) -> TaskOutcome:
    """The split, without reading a weight. Raises what loading would raise up to that point."""

    def stop(plan: ModelPlan) -> None:
        raise _Planned(plan, budget_for(config, plan, fingerprint(folder)))

    try:
        load_model(folder, config.prefill_chunk_tok, stop, lambda done, total: None, is_cancelled)
    except _Planned as planned:
        return _outcome(folder, planned.model, planned.budget)
    raise AssertionError("a load that is stopped at its plan does not end")


def _outcome(folder: Path, model: ModelPlan, budget: BudgetPlan) -> TaskOutcome:
    geometry = model.geometry
    report: dict[str, object] = {
        "model": str(folder),
        "budget_bytes": budget.budget_bytes,
        "parts": dict(budget.parts),
        "headroom_bytes": budget.headroom_bytes,
        "slots_per_layer": list(budget.slots_per_layer),
        "slot_moves": [str(move) for move in budget.slot_moves],
        "residency": budget.residency_rate,
        "context_tok": budget.context_tok,
        "expert_bytes_total": geometry.expert_bytes_total,
    }
    widest = max(layer.num_experts for layer in geometry.layers)
    rows = (*budget.parts, ("left over", budget.headroom_bytes), ("budget", budget.budget_bytes))
    return TaskOutcome(
        True,
        report,
        (
            f"{folder}",
            *(f"  {name:<18}{format_bytes(size):>10}" for name, size in rows),
            f"{geometry.num_layers} MoE layers, {slots_in_words(budget.slots_per_layer)} slots for {widest} experts "
            f"each ({budget.residency_rate:.0%} of {format_bytes(geometry.expert_bytes_total)})",
            f"context {budget.context_tok} tokens",
            *(f"  {move}" for move in budget.slot_moves),
        ),
    )
