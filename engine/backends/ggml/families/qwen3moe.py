"""Qwen3-MoE: grouped heads with a norm on each query and key head, every layer a MoE, softmax routing.

Source: the definition in transformers (`Qwen3MoeForCausalLM`).
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.shared_parts import read_attention, read_experts, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, LayerWeights, ModelSpec, RouterSpec

CHECKPOINTS: Final = {
    "qwen3_moe": CheckpointWords(
        numbers={"sliding_window": "attention.sliding_window"}, defaults={"norm_topk_prob": False}
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # of dense layers, which the family does not have
    normalises = model.flag("expert_weights_norm", True)
    scale = model.number("expert_weights_scale", 0, 1e6, default=1.0) or 1.0
    layers = [
        LayerWeights(
            **read_attention(model, prefix, sizes),
            ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
            **read_experts(model, prefix, sizes),
        )
        for prefix in sizes.prefixes()
    ]
    return spec_of(model, sizes, RouterSpec(SOFTMAX, normalises, scale), layers)
