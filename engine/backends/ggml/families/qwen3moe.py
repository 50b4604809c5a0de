"""Qwen3-MoE: grouped heads with a norm on each query and key head, every layer a MoE, softmax routing.

Source: the definition in transformers (`Qwen3MoeForCausalLM`).
"""

from __future__ import annotations

from typing import Any

from engine.backends.ggml.families.shared_parts import MAX_DIM, read_attention, read_ends, read_sizes
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, LayerWeights, ModelSpec, RouterSpec


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.integer("feed_forward_length", 0, MAX_DIM, default=0)  # of dense layers, which the family does not have
    normalises = model.flag("expert_weights_norm", True)
    scale = model.number("expert_weights_scale", 0, 1e6, default=1.0) or 1.0
    layers = []
    for number in range(sizes.num_layers):
        prefix = f"blk.{number}."
        attention: dict[str, Any] = read_attention(model, prefix, sizes)
        layers.append(
            LayerWeights(
                **attention,
                ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
                router=model.weight(prefix + "ffn_gate_inp.weight", sizes.hidden_dim, sizes.num_experts),
                experts=model.experts(prefix, sizes.hidden_dim, sizes.expert_dim, sizes.num_experts),
            )
        )
    return ModelSpec(
        family="qwen3moe",
        hidden_dim=sizes.hidden_dim,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        rope_dim=sizes.rope_dim,
        rope_base=sizes.rope_base,
        norm_eps=sizes.norm_eps,
        context_tok=sizes.context_tok,
        top_k=sizes.top_k,
        router=RouterSpec(SOFTMAX, normalises, scale),
        layers=tuple(layers),
        **read_ends(model, sizes),
    )
