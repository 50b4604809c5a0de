"""Plans the byte budget for a model without loading it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.backends.choice import open_backend
from engine.checkpoint.fingerprint import fingerprint
from engine.commands.task_outcome import TaskOutcome
from engine.config import EngineConfig, format_bytes
from engine.lookahead.forms import describe_forms
from engine.plan.budget import budget_for, chunks_in_words
from engine.plan.model_plan import ChunkNeeds
from engine.telemetry.effective import strategy_in_words
from offload.budget import BudgetPlan
from offload.errors import WaitCancelled
from offload.geometry import Geometry
from offload.slot_groups import count_in_words

_CACHED = (
    "its files are small: they are read through the page cache and may stay there, outside this plan, until the system "
    "needs the memory (with --memory they do not)"
)


def plan_model(config: EngineConfig, folder: Path, is_cancelled: Callable[[], bool]) -> TaskOutcome:
    """The plan, from configuration and headers; reads no weight. Raises what loading raises before its first weight,
    and WaitCancelled."""
    backend, why = open_backend(config, folder, is_cancelled)

    def needs_of(chunk_tok: int) -> ChunkNeeds:
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        return backend.needs_of(chunk_tok)

    budget = budget_for(config, backend.plan, needs_of, fingerprint(folder))
    if is_cancelled():
        raise WaitCancelled("Stopped.")
    prediction = describe_forms(backend.forms()[1:])
    runs_on = f"{backend.label} ({why})"
    return _outcome(folder, config, backend.plan.geometry, budget, prediction, runs_on)


def _outcome(
    folder: Path, config: EngineConfig, geometry: Geometry, budget: BudgetPlan, prediction: str, runs_on: str
) -> TaskOutcome:
    report: dict[str, object] = {
        "model": str(folder),
        "budget_bytes": budget.budget_bytes,
        "parts": dict(budget.parts),
        "headroom_bytes": budget.headroom_bytes,
        "strategy": config.strategy,
        "slots": budget.groups.in_words(),
        "slots_per_layer": list(budget.slots_per_layer),
        "slot_groups": {"slots": list(budget.groups.slots), "group_of_layer": list(budget.groups.group_of_layer)},
        "slot_moves": [str(move) for move in budget.slot_moves],
        "residency": budget.residency_rate,
        "context_tok": budget.context_tok,
        "chunk_tok": budget.chunk_tok,
        "expert_bytes_total": geometry.expert_bytes_total,
        "prediction": prediction,
        "back_end": runs_on,
        "keeps_files_cached": budget.keeps_files_cached,
    }
    widest = max(layer.num_experts for layer in geometry.layers)
    rows = (*budget.parts, ("left over", budget.headroom_bytes), ("budget", budget.budget_bytes))
    return TaskOutcome(
        True,
        report,
        (
            f"{folder}",
            f"runs on {runs_on}",
            *(f"  {name:<18}{format_bytes(size):>10}" for name, size in rows),
            f"{geometry.num_layers} MoE layers, {_slots_in_words(budget)} for {widest} experts "
            f"each ({budget.residency_rate:.0%} of {format_bytes(geometry.expert_bytes_total)})",
            f"strategy {strategy_in_words(config)}",
            f"context {budget.context_tok} tokens, {chunks_in_words(config, budget)}",
            *([_CACHED] if budget.keeps_files_cached else []),
            f"prediction: {prediction}",
            *(f"  {move}" for move in budget.slot_moves),
        ),
    )


def _slots_in_words(budget: BudgetPlan) -> str:
    groups = budget.groups
    return f"{count_in_words(groups.slots)} slots" if groups.is_per_layer else groups.in_words()
