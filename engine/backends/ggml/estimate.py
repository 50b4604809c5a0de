"""What a model of the ggml back end takes and gives at a budget, from its header alone: for menus, before it is loaded.

Slots, resident weights and the KV cache are what the plan of a load counts; the workspace of a forward, which a load
measures on graphs of the library, is estimated here. Light: needs neither torch nor the library.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.backends.ggml.expert_slots import STAGING_SLOTS, geometry_of
from engine.backends.ggml.model_spec import ModelSpec
from engine.checkpoint.catalogue import Costs
from engine.config import AUTO, FULL_LAYER, EngineConfig
from engine.plan import machine
from offload.budget import BudgetRequest, plan_budget
from offload.errors import BudgetError

_RUNTIME_BYTES: Final = 116 << 20
"""What the engine's process holds with its libraries, before a model."""
_WORKSPACE_BYTES: Final = 32 << 20
"""Of a forward, beside what follows from shapes."""
_READING_BYTES: Final = 64 << 10
"""Of each link thread, for the ends of its reads."""
_CHUNK_TOK: Final = 64
"""Of prompts, as the plan takes it where memory is scarce."""


def costs_of(spec: ModelSpec, config: EngineConfig) -> Costs:
    """The smallest budget, and what the budget that `config` asks for would give."""
    request = _request(spec, config)
    least = _needed_bytes(replace(request, memory_bytes=1, residency=None, available_bytes=1 << 62))
    try:
        plan = plan_budget(request)
    except BudgetError as error:
        return Costs(least, config.memory_bytes or error.needed_bytes or least, None, request.available_bytes)
    return Costs(least, plan.budget_bytes, plan.residency_rate, request.available_bytes)


def _needed_bytes(request: BudgetRequest) -> int:
    try:
        return plan_budget(request).total_bytes
    except BudgetError as error:
        return error.needed_bytes or 0


def _request(spec: ModelSpec, config: EngineConfig) -> BudgetRequest:
    from engine.backends.ggml.kv_cache import float16_needs  # 0.1 s: not for a menu without GGUF files

    num_link_threads = 1 if config.link_bytes_per_s is not None else config.link_threads
    hidden, vocabulary = spec.hidden_dim, spec.vocabulary_tok
    num_experts = max(len(layer.experts) for layer in spec.layers)
    prompt_per_tok = 4 * (2 * hidden + num_experts) + 4 * hidden + 24 * spec.top_k
    kv = float16_needs(spec, _CHUNK_TOK)
    return BudgetRequest(
        geometry=geometry_of(spec),
        memory_bytes=config.memory_bytes,
        residency=config.residency,
        runtime_bytes=_RUNTIME_BYTES,
        resident_bytes=sum(weight.num_bytes for weight in spec.resident().values()),
        kv_bytes_per_tok=kv.bytes_per_tok,
        kv_fixed_bytes=kv.fixed_bytes,
        workspace_bytes=_WORKSPACE_BYTES
        + 12 * vocabulary
        + 4 * _CHUNK_TOK * 8 * max(hidden, spec.heads.widest_dim)
        + num_link_threads * _READING_BYTES,
        workspace_bytes_per_tok=prompt_per_tok + 4 * (_CHUNK_TOK + 1),
        staging_slots=STAGING_SLOTS,
        context_tok=config.context_tok,
        model_context_tok=spec.context_tok,
        available_bytes=machine.available_bytes(),
        layer_staging=None if config.prefill == AUTO else config.prefill == FULL_LAYER,
    )
