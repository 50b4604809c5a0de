"""GLM-4.5: grouped heads with optional biases and head norms, the first layers dense, shared experts, sigmoid routing
with a correction bias.

Source: the definition in transformers (`Glm4MoeForCausalLM`). Experts in groups are refused (`expert_group_count`).
"""

from __future__ import annotations

from typing import Any

from engine.backends.ggml.families.shared_parts import MAX_DIM, Sizes, read_attention, read_ends, read_sizes
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SIGMOID, LayerWeights, ModelSpec, RouterSpec

_SIGMOID_GATE = 2
"""GGUF's number for it, in `expert_gating_func`."""


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    num_dense = model.integer("leading_dense_block_count", 0, sizes.num_layers - 1, default=0)
    num_shared = model.integer("expert_shared_count", 0, 1024, default=0)
    model.require("expert_gating_func", _SIGMOID_GATE)
    model.require("nextn_predict_layers", 0)
    for key in ("expert_group_count", "expert_group_used_count"):
        model.require(key, 0, 1)
    dense_dim = model.integer("feed_forward_length", 1, MAX_DIM, default=sizes.expert_dim)
    router = RouterSpec(
        SIGMOID, model.flag("expert_weights_norm", True), model.number("expert_weights_scale", 0, 1e6, default=1.0)
    )
    layers = [
        _layer(model, f"blk.{number}.", sizes, dense_dim if number < num_dense else 0, num_shared)
        for number in range(sizes.num_layers)
    ]
    return ModelSpec(
        family="glm4moe",
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
        **read_ends(model, sizes),
    )


def _layer(model: StoredModel, prefix: str, sizes: Sizes, dense_dim: int, num_shared: int) -> LayerWeights:
    """`dense_dim`: 0 for a MoE layer."""
    hidden = sizes.hidden_dim
    common: dict[str, Any] = read_attention(model, prefix, sizes)
    common["ffn_norm"] = model.weight(prefix + "post_attention_norm.weight", hidden)
    if dense_dim:
        return LayerWeights(**common, dense=model.network(prefix, "", hidden, dense_dim))
    shared = model.network(prefix, "_shexp", hidden, sizes.expert_dim * num_shared) if num_shared else None
    return LayerWeights(
        **common,
        router=model.weight(prefix + "ffn_gate_inp.weight", hidden, sizes.num_experts),
        router_bias=model.optional(prefix + "exp_probs_b.bias", sizes.num_experts),
        dense=shared,
        experts=model.experts(prefix, hidden, sizes.expert_dim, sizes.num_experts),
    )
