"""Llama with experts, which is Mixtral: grouped heads without norms, every layer a MoE, softmax routing.

Source: the definition in transformers (`MixtralForCausalLM`). llama.cpp's converter reorders the rows of queries and
keys so that rotary embeddings pair neighbours; a checkpoint of the library pairs the halves of a head.
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.rope_parts import read_rope
from engine.backends.ggml.families.shared_parts import (
    NO_NORMS,
    read_attention,
    read_experts,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, LayerWeights, ModelSpec, RouterSpec

CHECKPOINTS: Final = {
    "mixtral": CheckpointWords(
        numbers={"sliding_window": "attention.sliding_window"},
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6},
        tensors={
            r"block_sparse_moe\.experts\.(\d+)\.w1\.weight": r"ffn_gate.\1.weight",
            r"block_sparse_moe\.experts\.(\d+)\.w2\.weight": r"ffn_down.\1.weight",
            r"block_sparse_moe\.experts\.(\d+)\.w3\.weight": r"ffn_up.\1.weight",
            r"block_sparse_moe\.gate\.weight": "ffn_gate_inp.weight",
        },
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # the experts' length
    layers = [
        LayerWeights(
            **read_attention(model, prefix, sizes, NO_NORMS),
            ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
            **read_experts(model, prefix, sizes),
        )
        for prefix in sizes.prefixes()
    ]
    rope = read_rope(model, sizes.rope_dim, is_interleaved=model.is_converted)
    return spec_of(model, sizes, RouterSpec(SOFTMAX, True), layers, rope=rope)
