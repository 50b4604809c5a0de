"""What families have in common: sizes and the checks of rope keys, attention with grouped key and value heads and its
norms, shared experts, and the model's two ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import (
    GELU,
    HALVES,
    NEIGHBOURS,
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
    rope_base: float
    rope_dim: int
    context_tok: int
    num_experts: int
    top_k: int
    expert_dim: int

    def prefixes(self) -> Sequence[str]:
        """Of every layer's tensors."""
        return [f"blk.{number}." for number in range(self.num_layers)]


def converted_rope_pairs(model: StoredModel) -> int:
    """Of families whose rows of queries and keys llama.cpp's converter reorders: see `llama`."""
    return NEIGHBOURS if model.is_converted else HALVES


def read_sizes(model: StoredModel) -> Sizes:
    """Raises CheckpointError and UnsupportedModelError."""
    hidden_dim = model.integer("embedding_length", 1, MAX_DIM)
    num_heads = model.integer("attention.head_count", 1, 1 << 16)
    head_dim = model.integer("attention.key_length", 1, 1 << 16, default=hidden_dim // num_heads)
    model.require("attention.value_length", head_dim)
    model.require("rope.scaling.type", "none", "default")
    for key in ("rope.scaling.factor", "rope.scaling.attn_factor"):
        model.require(key, 0, 1, 0.0, 1.0)
    model.require("rope.dimension_sections")
    for key in ("attention.sliding_window", "final_logit_softcapping", "attn_logit_softcapping"):
        model.require(key, 0)
    num_experts = model.integer("expert_count", 2, MAX_EXPERTS)
    return Sizes(
        num_layers=model.integer("block_count", 1, MAX_LAYERS),
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        num_kv_heads=model.integer("attention.head_count_kv", 1, num_heads, default=num_heads),
        head_dim=head_dim,
        norm_eps=model.number("attention.layer_norm_rms_epsilon", 0, 1),
        rope_base=model.number("rope.freq_base", 1, 1e12, default=10_000.0),
        rope_dim=model.integer("rope.dimension_count", 2, head_dim, default=head_dim),
        context_tok=model.integer("context_length", 1, MAX_TOK),
        num_experts=num_experts,
        top_k=model.integer("expert_used_count", 1, num_experts),
        expert_dim=_expert_dim(model),
    )


def _expert_dim(model: StoredModel) -> int:
    """Families without dense layers may give their experts' length as that of the network."""
    if model.says("expert_feed_forward_length"):
        return model.integer("expert_feed_forward_length", 1, MAX_DIM)
    return model.integer("feed_forward_length", 1, MAX_DIM)


def read_attention(model: StoredModel, prefix: str, sizes: Sizes, norms: str = PER_HEAD) -> dict[str, Any]:
    """The attention's tensors of one layer, by the names of `LayerWeights`; biases and `norms` where there are any."""
    hidden, dim = sizes.hidden_dim, sizes.head_dim
    query_dim, kv_dim = sizes.num_heads * dim, sizes.num_kv_heads * dim
    found = {
        "attention_norm": model.weight(prefix + "attn_norm.weight", hidden),
        "query": model.weight(prefix + "attn_q.weight", hidden, query_dim),
        "key": model.weight(prefix + "attn_k.weight", hidden, kv_dim),
        "value": model.weight(prefix + "attn_v.weight", hidden, kv_dim),
        "output": model.weight(prefix + "attn_output.weight", query_dim, hidden),
        "query_bias": model.optional(prefix + "attn_q.bias", query_dim),
        "key_bias": model.optional(prefix + "attn_k.bias", kv_dim),
        "value_bias": model.optional(prefix + "attn_v.bias", kv_dim),
        "output_bias": model.optional(prefix + "attn_output.bias", hidden),
    }
    if norms != NO_NORMS:
        lengths = (dim, dim) if norms == PER_HEAD else (query_dim, kv_dim)
        found["query_norm"] = model.optional(prefix + "attn_q_norm.weight", lengths[0])
        found["key_norm"] = model.optional(prefix + "attn_k_norm.weight", lengths[1])
    return found


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
    model: StoredModel, sizes: Sizes, router: RouterSpec, layers: Sequence[LayerWeights], **others: Any
) -> ModelSpec:
    """The whole model; `others`: further fields of `ModelSpec`."""
    return ModelSpec(
        family=model.family,
        hidden_dim=sizes.hidden_dim,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        rope_dim=sizes.rope_dim,
        rope_base=sizes.rope_base,
        norm_eps=sizes.norm_eps,
        context_tok=sizes.context_tok,
        top_k=sizes.top_k,
        router=router,
        layers=tuple(layers),
        activation=model.choice("hidden_act", {"silu": SILU, "gelu": GELU}, SILU),
        **read_ends(model, sizes),
        **others,
    )
