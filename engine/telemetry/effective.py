"""The effective configuration and its notices, as text for the user."""

from __future__ import annotations

from pathlib import Path

from engine.backends.offloaded_model import OffloadedModel
from engine.checkpoint.gguf.location import is_gguf
from engine.config import DEMO_MODEL, KV_TYPES, EngineConfig, format_bytes, strategy_named
from engine.demo.model import DEMO_LIMIT
from engine.events import EngineReady
from engine.experts.expert_runtime import depth_in_effect
from engine.lookahead.forms import describe_forms
from engine.plan.budget import chunks_in_words
from offload.budget import BudgetPlan
from offload.policies.forecast import ACTIVATIONS, SELECTIONS, WHOLE_LAYER
from offload.slot_groups import count_in_words


def describe_ready(
    engine: OffloadedModel, mode: str, load_s: float, thinking_choices: tuple[str, ...] = ()
) -> EngineReady:
    """The event that says what was loaded, and how."""
    geometry, name = engine.loaded.plan.geometry, engine.config.model
    return EngineReady(
        model_name=Path(name).name if name != DEMO_MODEL and Path(name).exists() else name,
        model_type=engine.loaded.model_type,
        num_layers=geometry.num_layers,
        num_experts=max(layer.num_experts for layer in geometry.layers),
        top_k=max(layer.top_k for layer in geometry.layers),
        context_tok=engine.budget.context_tok,
        effective=effective(engine, mode),
        notices=notices(engine),
        load_s=load_s,
        thinking_choices=thinking_choices,
    )


def effective(engine: OffloadedModel, mode: str) -> tuple[tuple[str, str], ...]:
    """The value in effect of every setting, as (name, value)."""
    config, budget, loaded = engine.config, engine.budget, engine.loaded
    policies, widest = config.policies, max(layer.num_experts for layer in loaded.plan.geometry.layers)
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in budget.parts)
    depth = f", depth {depth_in_effect(config, loaded.plan.geometry)}" if policies.prefetch != "none" else ""
    if engine.prefetching.is_adaptive:
        depth = ", depth by the overlap window"
    return (
        ("model", str(loaded.folder)),
        *_config_source(engine),
        ("architecture", loaded.model_type),
        ("back end", f"{engine.backend.label} ({engine.why_backend})"),
        ("number format", loaded.number_format),
        ("budget", f"{format_bytes(budget.budget_bytes)} = {parts}"),
        ("slots", f"{slots_in_words(budget, widest)}{_moved(budget)}"),
        ("context", f"{budget.context_tok} tokens{_kv_type(engine)}"),
        ("prefill", f"{chunks_in_words(config, budget)}, {_prefill_path(budget)}"),
        ("strategy", strategy_in_words(config)),
        ("mode", f"{mode}, alpha {config.alpha:g}"),
        ("eviction", f"history ({engine.tuned})" if policies.eviction == "history" else policies.eviction),
        ("prefetch", f"{policies.prefetch}{depth}, {_forecasts_in_words(engine)}"),
        ("link", describe_link(engine)),
        ("experts read", f"{loaded.store.reads}, {_as_stored(engine)}"),
        ("threads", f"{engine.threads}, {engine.link.num_threads} link"),
    )


def _config_source(engine: OffloadedModel) -> tuple[tuple[str, str], ...]:
    source = engine.config.config_source
    return (("configuration", f"{source} (--config)"),) if source and is_gguf(engine.loaded.folder) else ()


def slots_in_words(budget: BudgetPlan, num_experts: int) -> str:
    """`8 of 16 a layer (50% of the experts)`, `96 slots in one pool (25% of the experts)`."""
    groups = budget.groups
    shown = f"{count_in_words(groups.slots)} of {num_experts} a layer" if groups.is_per_layer else groups.in_words()
    return f"{shown} ({budget.residency_rate:.0%} of the experts)"


def _forecasts_in_words(engine: OffloadedModel) -> str:
    source = engine.prefetching.source
    if source == ACTIVATIONS:
        return f"{engine.past_requests.collection.size} past requests"
    if source == SELECTIONS:
        return engine.predictor_about or "not trained: it counts which experts follow which"
    return "every expert" if source == WHOLE_LAYER else describe_forms(engine.lookahead.forms()[1:])


def strategy_in_words(config: EngineConfig) -> str:
    """`moe-core`, or `moe-core with eviction lru` where options differ from the strategy's own."""
    changes = config.policies.changes(strategy_named(config.strategy))
    return config.strategy + (f" with {', '.join(changes)}" if changes else "")


def _as_stored(engine: OffloadedModel) -> str:
    return f"{engine.loaded.store.num_direct_layers} of {len(engine.layers)} layers straight into slots"


def _kv_type(engine: OffloadedModel) -> str:
    """The format of the KV cache, where it was chosen."""
    kv_type = engine.config.kv_type
    return f", KV cache in {kv_type}" if kv_type != KV_TYPES[0] else ""


def _moved(budget: BudgetPlan) -> str:
    return f", {len(budget.slot_moves)} moved by what the profiles say" if budget.slot_moves else ""


def _prefill_path(budget: BudgetPlan) -> str:
    return "whole layers staged in two buffers" if budget.has_layer_staging else "experts streamed through a ring"


def describe_link(engine: OffloadedModel) -> str:
    """The link for a person; an emulated one says so."""
    emulated, best = engine.link.emulated_bytes_per_s, engine.link.best_bytes_per_s
    if emulated:
        return f"emulated {emulated / 1e9:g} GB/s"
    return f"disk to RAM, best measured {best / 1e9:.2f} GB/s" if best else "disk to RAM, not measured yet"


def notices(engine: OffloadedModel) -> tuple[str, ...]:
    """What the user should know before reading an answer."""
    said = [DEMO_LIMIT] if engine.config.model == DEMO_MODEL else []
    if engine.config.link_bytes_per_s:
        said.append(f"The link is emulated at {engine.config.link_bytes_per_s / 1e9:g} GB/s.")
    if not getattr(engine.loaded.tokenizer, "chat_template", None):
        said.append("The model has no chat template: the conversation is given to it as plain text.")
    if engine.config.policies.eviction == "history" and engine.tuned.problem:
        said.append(engine.tuned.problem)
    if engine.config.config_source is not None and not is_gguf(engine.loaded.folder):
        said.append("--config is for GGUF files; this model has a configuration of its own, which is used.")
    if engine.past_requests.problem:
        said.append(engine.past_requests.problem)
    if engine.predictor_problem:
        said.append(engine.predictor_problem)
    said += engine.loaded.notices()
    if engine.budget.residency_rate >= 1:
        said.append("Every routed expert fits into the budget: nothing needs to be offloaded.")
    return tuple(said)
