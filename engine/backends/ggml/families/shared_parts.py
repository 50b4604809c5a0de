"""What families have in common: sizes and the checks of rope keys, attention with grouped key and value heads and its
norms, shared experts, and the model's two ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from engine.backends.ggml.attention_spec import GroupedAttention, GroupedHeads, Heads, RopeSpec
from engine.backends.ggml.families.rope_parts import read_rope
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import (
    GELU,
    SIGMOID,
    SILU,
    SOFTMAX,
    ExpertWeights,
    LayerWeights,
    ModelSpec,
    RouterSpec,
    StoredWeight,
)

MAX_LAYERS, MAX_DIM, MAX_EXPERTS, MAX_TOK = 1000, 1 << 20, 4096, 1 << 31
PER_HEAD, PER_PROJECTION, NO_NORMS = "head", "projection", "none"
"""What a norm of queries and keys spans."""
_GATING: Final = {1: SOFTMAX, 2: SIGMOID}
"""GGUF's numbers in `expert_gating_func`."""


class Sizes(NamedTuple):
    """The numbers that every family has."""

    num_layers: int
    hidden_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_dim: int
    context_tok: int
    num_experts: int
    top_k: int
    expert_dim: int
    window_tok: int
    windowed: frozenset[str]
    """Prefixes of the layers whose attention sees the last `window_tok` tokens alone."""

    def prefixes(self) -> Sequence[str]:
        """Of every layer's tensors."""
        return [f"blk.{number}." for number in range(self.num_layers)]


def read_sizes(model: StoredModel, window_period: int = 1, is_latent: bool = False) -> Sizes:
    """`window_period`: where the model has windows and does not say in which layers, all but every so manieth has one;
    1: all. `is_latent`: heads are `LatentHeads`, and read elsewhere. Raises CheckpointError and UnsupportedModelError.
    """
    hidden_dim = model.integer("embedding_length", 1, MAX_DIM)
    num_heads = model.integer("attention.head_count", 1, 1 << 16)
    head_dim = model.integer("attention.key_length", 1, 1 << 16, default=hidden_dim // num_heads)
    if not is_latent:
        model.require("attention.value_length", head_dim)
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        model.require(key, 0)
    num_experts = model.integer("expert_count", 2, MAX_EXPERTS)
    num_blocks = model.integer("block_count", 1, MAX_LAYERS)
    num_layers = num_blocks - model.integer("nextn_predict_layers", 0, num_blocks - 1, default=0)
    model.ignore_blocks(num_layers)  # they predict further tokens, and change nothing in the next one
    window_tok, windowed = read_windows(model, num_layers, window_period)
    return Sizes(
        num_layers=num_layers,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        num_kv_heads=model.integer("attention.head_count_kv", 1, num_heads, default=num_heads),
        head_dim=head_dim,
        norm_eps=model.number("attention.layer_norm_rms_epsilon", 0, 1),
        rope_dim=model.integer("rope.dimension_count", 2, MAX_DIM if is_latent else head_dim, default=head_dim),
        context_tok=model.integer("context_length", 1, MAX_TOK),
        num_experts=num_experts,
        top_k=model.integer("expert_used_count", 1, num_experts),
        expert_dim=_expert_dim(model),
        window_tok=window_tok,
        windowed=windowed,
    )


def read_windows(model: StoredModel, num_layers: int, period: int) -> tuple[int, frozenset[str]]:
    """(tokens of a window, the prefixes of windowed layers). See `read_sizes`."""
    window_tok = model.integer("attention.sliding_window", 0, MAX_TOK, default=0)
    stored = model.list_of("attention.sliding_window_pattern", num_layers)
    if isinstance(stored, int):
        period, stored = stored, None
    if stored is None:
        stored = [period <= 1 or number % period < period - 1 for number in range(num_layers)]
    return window_tok, frozenset(f"blk.{number}." for number, has in enumerate(stored) if has and window_tok)


def _expert_dim(model: StoredModel) -> int:
    """Families without dense layers may give their experts' length as that of the network."""
    if model.says("expert_feed_forward_length"):
        return model.integer("expert_feed_forward_length", 1, MAX_DIM)
    return model.integer("feed_forward_length", 1, MAX_DIM)


def read_attention(
    model: StoredModel, prefix: str, sizes: Sizes, norms: str = PER_HEAD, gated: bool = False
) -> dict[str, Any]:
    """The attention's tensors of one layer, by the names of `LayerWeights`; biases and `norms` where there are any.
    `gated`: see `GroupedAttention`."""
    hidden, dim = sizes.hidden_dim, sizes.head_dim
    query_dim, kv_dim = sizes.num_heads * dim, sizes.num_kv_heads * dim
    found: dict[str, Any] = {
        "query": model.weight(prefix + "attn_q.weight", hidden, query_dim * (2 if gated else 1)),
        "key": model.weight(prefix + "attn_k.weight", hidden, kv_dim),
        "value": model.weight(prefix + "attn_v.weight", hidden, kv_dim),
        "output": model.weight(prefix + "attn_output.weight", query_dim, hidden),
        "query_bias": None if gated else model.optional(prefix + "attn_q.bias", query_dim),
        "key_bias": model.optional(prefix + "attn_k.bias", kv_dim),
        "value_bias": model.optional(prefix + "attn_v.bias", kv_dim),
        "output_bias": model.optional(prefix + "attn_output.bias", hidden),
        "sinks": model.optional(prefix + "attn_sinks.weight", sizes.num_heads),
    }
    if norms != NO_NORMS:
        lengths = (dim, dim) if norms == PER_HEAD else (query_dim, kv_dim)
        found["query_norm"] = model.optional(prefix + "attn_q_norm.weight", lengths[0])
        found["key_norm"] = model.optional(prefix + "attn_k_norm.weight", lengths[1])
    norm = model.weight(prefix + "attn_norm.weight", hidden)
    attention = GroupedAttention(**found, is_windowed=prefix in sizes.windowed, is_gated=gated)
    return {"attention_norm": norm, "attention": attention}


def grouped_heads(sizes: Sizes, scale: float | None = None, norms_after_rope: bool = False) -> GroupedHeads:
    """`scale`: of the products of queries and keys; None: 1 / sqrt(head dim)."""
    scale = sizes.head_dim**-0.5 if scale is None else scale
    return GroupedHeads(sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, scale, norms_after_rope)


def read_experts(
    model: StoredModel, prefix: str, sizes: Sizes, shared: ExpertWeights | None = None, **others: StoredWeight | None
) -> dict[str, Any]:
    """Router and routed experts of one layer, by the names of `LayerWeights`, and `shared` experts beside them."""
    return {
        "router": model.weight(prefix + "ffn_gate_inp.weight", sizes.hidden_dim, sizes.num_experts),
        "experts": model.experts(prefix, sizes.hidden_dim, sizes.expert_dim, sizes.num_experts),
        "dense": shared,
        **others,
    }


def read_shared_experts(model: StoredModel, prefix: str, sizes: Sizes, width: int) -> ExpertWeights | None:
    """The shared experts of one layer as one network of this width; 0: there are none."""
    return model.network(prefix, "_shexp", sizes.hidden_dim, width) if width else None


def read_shared_gate(model: StoredModel, prefix: str, sizes: Sizes) -> StoredWeight:
    """The gate before the shared experts of one layer. GGUF stores it as a vector."""
    shape = sizes.hidden_dim, 1
    return model.weight_of(prefix + "ffn_gate_inp_shexp.weight", shape[:1], shape)._replace(shape=shape)


def read_scored_router(model: StoredModel, scoring: str = SIGMOID, normalises: bool = False) -> RouterSpec:
    """A router whose kind of scores, sum and scale the model may give, as DeepSeek-V3's; `scoring` and `normalises`:
    where it does not, as in llama.cpp. Experts in groups are refused."""
    model.require("expert_gating_func", *_GATING)
    for key in ("expert_group_count", "expert_group_used_count"):
        model.require(key, 0, 1)
    gating = {kind: number for number, kind in _GATING.items()}[scoring]
    return RouterSpec(
        _GATING[model.integer("expert_gating_func", 1, 2, default=gating)],
        model.flag("expert_weights_norm", normalises),
        model.number("expert_weights_scale", 0, 1e6, default=1.0) or 1.0,
    )


def read_ends(model: StoredModel, sizes: Sizes) -> dict[str, Any]:
    """The tensors before and behind the layers, by the names of `ModelSpec`."""
    vocabulary_tok = model.integer("vocab_size", 1, 1 << 24)
    embedding = model.weight("token_embd.weight", sizes.hidden_dim, vocabulary_tok)
    return {
        "vocabulary_tok": vocabulary_tok,
        "embedding": embedding,
        "output_norm": model.weight("output_norm.weight", sizes.hidden_dim),
        "output": model.optional("output.weight", sizes.hidden_dim, vocabulary_tok) or embedding,
    }


def spec_of(
    model: StoredModel,
    sizes: Sizes,
    router: RouterSpec,
    layers: Sequence[LayerWeights],
    heads: Heads | None = None,
    rope: RopeSpec | None = None,
    activation: str | None = None,
    **others: Any,
) -> ModelSpec:
    """The whole model. `heads`, `rope`, `activation`: where they are others than the usual ones; `others`: further
    fields of `ModelSpec`."""
    return ModelSpec(
        family=model.family,
        hidden_dim=sizes.hidden_dim,
        heads=heads or grouped_heads(sizes),
        rope=rope or read_rope(model, sizes.rope_dim),
        window_tok=sizes.window_tok if sizes.windowed else 0,
        norm_eps=sizes.norm_eps,
        context_tok=sizes.context_tok,
        top_k=sizes.top_k,
        router=router,
        layers=tuple(layers),
        activation=activation or model.choice("hidden_act", {"silu": SILU, "gelu": GELU}, SILU),
        **read_ends(model, sizes),
        **others,
    )
