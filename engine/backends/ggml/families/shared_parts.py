"""What families have in common: attention with grouped key and value heads, its norms, and the checks of rope keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import StoredWeight

MAX_LAYERS, MAX_DIM, MAX_EXPERTS, MAX_TOK = 1000, 1 << 20, 4096, 1 << 31


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


def read_sizes(model: StoredModel) -> Sizes:
    """Raises CheckpointError and UnsupportedModelError."""
    hidden_dim = model.integer("embedding_length", 1, MAX_DIM)
    num_heads = model.integer("attention.head_count", 1, 1 << 16)
    head_dim = model.integer("attention.key_length", 1, 1 << 16, default=hidden_dim // num_heads)
    model.require("attention.value_length", head_dim)
    model.require("rope.scaling.type", "none", "default")
    for key in ("rope.scaling.factor", "rope.scaling.attn_factor", "attention.scale"):
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
        expert_dim=model.integer("expert_feed_forward_length", 1, MAX_DIM),
    )


def read_attention(model: StoredModel, prefix: str, sizes: Sizes) -> dict[str, StoredWeight | None]:
    """The attention's tensors of one layer, by the names of `LayerWeights`."""
    hidden, dim = sizes.hidden_dim, sizes.head_dim
    query_dim, kv_dim = sizes.num_heads * dim, sizes.num_kv_heads * dim
    return {
        "attention_norm": model.weight(prefix + "attn_norm.weight", hidden),
        "query": model.weight(prefix + "attn_q.weight", hidden, query_dim),
        "key": model.weight(prefix + "attn_k.weight", hidden, kv_dim),
        "value": model.weight(prefix + "attn_v.weight", hidden, kv_dim),
        "output": model.weight(prefix + "attn_output.weight", query_dim, hidden),
        "query_bias": model.optional(prefix + "attn_q.bias", query_dim),
        "key_bias": model.optional(prefix + "attn_k.bias", kv_dim),
        "value_bias": model.optional(prefix + "attn_v.bias", kv_dim),
        "query_norm": model.optional(prefix + "attn_q_norm.weight", dim),
        "key_norm": model.optional(prefix + "attn_k_norm.weight", dim),
    }


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
