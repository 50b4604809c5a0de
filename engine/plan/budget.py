"""Plans a model's byte budget before loading, from configuration, model and free memory.

The split itself, and the refusal of a budget that is too small, are in `offload.budget`.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from engine.config import AUTO, FULL_LAYER, EngineConfig, format_bytes
from engine.plan import machine
from engine.plan.model_plan import ChunkNeeds, ModelPlan, NeedsOfChunk
from engine.plan.policy_memory import policy_bytes
from engine.profiles.store import ProfileStore
from offload.budget import BudgetPlan, BudgetRequest, plan_budget
from offload.errors import BudgetError
from offload.geometry import Geometry
from offload.nonuniform_budget import with_moved_slots
from offload.policies.slot_planning.curve import HitRateCurve, mean_curves
from offload.strategy.bundle import Strategy

_MIN_CHUNK_TOK = 32
_MAX_WORKSPACE_SHARE = 0.125
"""Of the budget: where the workspace takes more, shorter chunks are tried."""
_WORTH_HALVING = 0.75
"""Shorter chunks are taken if their workspace is at most this share of the longer ones'."""
_TEMPLATE_PROCESS_BYTES = 12 << 20
"""Memory of the process that renders chat templates that it shares with no other."""


def budget_for(config: EngineConfig, plan: ModelPlan, needs_of: NeedsOfChunk, model_fingerprint: str) -> BudgetPlan:
    """Splits the budget that `config` asks for. Raises BudgetError with the smallest number that works.

    Prompts are computed in chunks of `config.prefill_chunk_tok` tokens, or of half of that, a quarter and so on: where
    the budget has no room for the workspace of longer ones, or would spend much of itself on it.
    """
    budget = _budget_of_longest_chunk(config, plan, needs_of, model_fingerprint)
    return _with_profiled_slots(config, plan, budget, model_fingerprint)


def with_measured_workspace(
    config: EngineConfig,
    plan: ModelPlan,
    needs: ChunkNeeds,
    budget: BudgetPlan,
    workspace_bytes: int,
    model_fingerprint: str,
) -> BudgetPlan:
    """Plans again with the same context and chunks, after a trial forward took more workspace than planned.

    Raises BudgetError when that leaves too little for slots.
    """
    measured = replace(budget, workspace_bytes=workspace_bytes)
    return replanned(config, plan, needs, measured, config, model_fingerprint)


def replanned(
    config: EngineConfig, plan: ModelPlan, needs: ChunkNeeds, budget: BudgetPlan, before: EngineConfig, fingerprint: str
) -> BudgetPlan:
    """Shares the bytes of a loaded model's budget out anew, for other policies: runtime, weights, KV cache, context and
    workspace stay as they are. Raises BudgetError when that leaves too little for slots."""
    policies = config.policies
    held = policy_bytes(before.policies, plan.geometry, fingerprint)
    request = BudgetRequest(
        geometry=plan.geometry,
        memory_bytes=None if config.residency is not None else budget.budget_bytes,
        residency=config.residency,
        runtime_bytes=budget.runtime_bytes - held + policy_bytes(policies, plan.geometry, fingerprint),
        resident_bytes=budget.resident_bytes,
        kv_bytes_per_tok=needs.kv.bytes_per_tok,
        kv_fixed_bytes=needs.kv.fixed_bytes,
        workspace_bytes=budget.workspace_bytes,
        chunk_tok=budget.chunk_tok,
        staging_slots=plan.ring_slots(policies),
        context_tok=budget.context_tok,
        model_context_tok=plan.model_context_tok,
        available_bytes=max(machine.available_bytes(), budget.budget_bytes),
        layer_staging=_layer_staging(policies, plan),
        cache=policies.cache,
    )
    return _with_profiled_slots(config, plan, plan_budget(request), fingerprint)


def _with_profiled_slots(
    config: EngineConfig, plan: ModelPlan, budget: BudgetPlan, model_fingerprint: str
) -> BudgetPlan:
    is_nonuniform = config.policies.cache.is_nonuniform
    curves = profiled_curves(model_fingerprint, plan.geometry) if is_nonuniform else ()
    return with_moved_slots(budget, plan.geometry, curves) if curves else budget


def _budget_of_longest_chunk(
    config: EngineConfig, plan: ModelPlan, needs_of: NeedsOfChunk, model_fingerprint: str
) -> BudgetPlan:
    chunk_tok = config.prefill_chunk_tok
    budget: BudgetPlan | None = None
    while True:
        needs, can_halve = needs_of(chunk_tok), chunk_tok // 2 >= _MIN_CHUNK_TOK
        try:
            shorter = _uniform_budget(config, plan, needs, chunk_tok, model_fingerprint)
        except BudgetError:
            if budget is not None:
                return budget
            if not can_halve:
                raise
        else:
            if budget is not None and shorter.workspace_bytes > _WORTH_HALVING * budget.workspace_bytes:
                return budget
            budget = shorter
            if not can_halve or budget.workspace_bytes <= _MAX_WORKSPACE_SHARE * budget.budget_bytes:
                return budget
        chunk_tok //= 2


def profiled_curves(model_fingerprint: str, geometry: Geometry) -> tuple[HitRateCurve, ...]:
    """Per layer, the mean hit-rate curve over the model's profiles; empty without any that can be used.

    The mean, since slots are shared out once and the domain may change: which layers are short of slots is much the
    same on every domain ("MoE-CORE: Coordinated Expert Offload": the same layers are the troughs on every workload).
    """
    store = ProfileStore(model_fingerprint)
    profiles = [profile for profile in map(store.usable, store.names()) if profile is not None]
    fitting = [profile for profile in profiles if profile.geometry.routes_like(geometry) and profile.num_decode_tok]
    return mean_curves([profile.curves() for profile in fitting]) if fitting else ()


def _uniform_budget(
    config: EngineConfig, plan: ModelPlan, needs: ChunkNeeds, chunk_tok: int, model_fingerprint: str
) -> BudgetPlan:
    policies = config.policies
    return plan_budget(
        BudgetRequest(
            geometry=plan.geometry,
            memory_bytes=config.memory_bytes,
            residency=config.residency,
            runtime_bytes=_runtime_bytes(plan.runtime_margin_bytes)
            + policy_bytes(policies, plan.geometry, model_fingerprint),
            resident_bytes=plan.resident_bytes,
            kv_bytes_per_tok=needs.kv.bytes_per_tok,
            kv_fixed_bytes=needs.kv.fixed_bytes,
            workspace_bytes=needs.workspace.fixed_bytes + _conversion_bytes(config, plan),
            workspace_bytes_per_tok=needs.workspace.bytes_per_tok,
            chunk_tok=chunk_tok,
            staging_slots=plan.ring_slots(policies),
            context_tok=config.context_tok,
            model_context_tok=plan.model_context_tok,
            available_bytes=machine.available_bytes(),
            layer_staging=_layer_staging(policies, plan),
            cache=policies.cache,
        )
    )


def _layer_staging(policies: Strategy, plan: ModelPlan) -> bool | None:
    """As BudgetRequest has it; None: decided by what it takes."""
    if policies.prefill == AUTO:
        return None if plan.may_stage_layers else False
    return policies.prefill == FULL_LAYER


def _conversion_bytes(config: EngineConfig, plan: ModelPlan) -> int:
    num_link_threads = 1 if config.link_bytes_per_s is not None else config.link_threads
    return num_link_threads * plan.conversion_bytes


def _runtime_bytes(margin_bytes: int) -> int:
    """Memory of the processes without a model. Part of the margin may already be in use when a second model is planned;
    a budget that was enough for the first plan must still be enough."""
    held_bytes = max(_first_rss_bytes() + margin_bytes, machine.rss_bytes() + margin_bytes // 4)
    return held_bytes + _TEMPLATE_PROCESS_BYTES


@functools.cache
def _first_rss_bytes() -> int:
    return machine.rss_bytes()


def chunks_in_words(config: EngineConfig, budget: BudgetPlan) -> str:
    """`chunks of 256 tokens`, with the reason where they are shorter than asked for."""
    shown = f"chunks of {budget.chunk_tok} tokens"
    if budget.chunk_tok < config.prefill_chunk_tok:
        shown += f" ({config.prefill_chunk_tok} would take more workspace than this budget has for it)"
    return shown


def require_free(num_bytes: int, what: str) -> None:
    """Raises BudgetError unless `num_bytes` more are free now. For what runs outside the budget; `what` names it."""
    free_bytes = machine.available_bytes() - machine.rss_bytes()
    if num_bytes > free_bytes:
        raise BudgetError(
            f"{what} takes {format_bytes(num_bytes)}, and {format_bytes(free_bytes)} are free.",
            "Close other programs, or use a smaller model.",
        )
