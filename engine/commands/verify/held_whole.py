"""Verifies against the same model on the same back end with every expert in memory: what EXACT means on ggml."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.task_outcome import OnTaskProgress
from engine.commands.verify.comparison import ComparisonResult
from engine.commands.verify.whole_model import compare, result_of
from engine.config import EXACT, format_bytes
from engine.plan.budget import require_free


def against_itself_held_whole(
    engine: OffloadedModel,
    prompts: list[list[int]],
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> ComparisonResult:
    """Loads it a second time beside the engine, outside its budget, with a slot for every expert and the same threads.
    Raises BudgetError where there is no room for it, WaitCancelled."""
    plan = engine.loaded.plan
    whole_bytes = plan.resident_bytes + plan.geometry.expert_bytes_total
    require_free(whole_bytes + engine.budget.kv_bytes + engine.budget.workspace_bytes, "Holding the model whole")
    on_progress("loading the model whole", 0, len(prompts))
    config = replace(
        engine.config,
        memory_bytes=None,
        residency=1.0,
        mode=EXACT,
        domain=None,
        context_tok=engine.budget.context_tok,
        prefill_chunk_tok=engine.budget.chunk_tok,
        compute_threads=engine.backend.num_threads,
        link_bytes_per_s=None,
    )
    whole = OffloadedModel(config, engine.loaded.folder, lambda progress: None, is_cancelled)
    try:
        comparisons = compare(engine, prompts, num_tok, on_progress, is_cancelled, whole.greedy_ids)
    finally:
        whole.close()
    return result_of(comparisons, f"Against itself with every expert in memory ({format_bytes(whole_bytes)}):")
