"""Qwen1.5-MoE and Qwen2-MoE: grouped heads with biases, softmax routing, shared experts behind a gate of their own.

Source: the definition in transformers (`Qwen2MoeForCausalLM`). GGUF files do not say whether the k weights are divided
by their sum, and llama.cpp does not divide them.
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.shared_parts import (
    MAX_DIM,
    NO_NORMS,
    Sizes,
    read_attention,
    read_experts,
    read_shared_experts,
    read_shared_gate,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, LayerWeights, ModelSpec, RouterSpec

CHECKPOINTS: Final = {"qwen2_moe": CheckpointWords(defaults={"norm_topk_prob": False})}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # of dense layers, which are refused
    width = model.integer("expert_shared_feed_forward_length", 1, MAX_DIM)
    router = RouterSpec(SOFTMAX, model.flag("expert_weights_norm", False))
    return spec_of(model, sizes, router, [_layer(model, prefix, sizes, width) for prefix in sizes.prefixes()])


def _layer(model: StoredModel, prefix: str, sizes: Sizes, shared_width: int) -> LayerWeights:
    return LayerWeights(
        **read_attention(model, prefix, sizes, NO_NORMS),
        ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
        **read_experts(model, prefix, sizes, read_shared_experts(model, prefix, sizes, shared_width)),
        shared_gate=read_shared_gate(model, prefix, sizes),
    )
