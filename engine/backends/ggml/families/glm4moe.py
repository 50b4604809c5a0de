"""GLM-4.5: grouped heads with optional biases and head norms, the first layers dense, shared experts, sigmoid routing
with a correction bias.

Source: the definition in transformers (`Glm4MoeForCausalLM`). Experts in groups are refused (`expert_group_count`).
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import num_dense_by_kinds, read_mixed_layers, read_plan
from engine.backends.ggml.families.shared_parts import read_scored_router, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec

CHECKPOINTS: Final = {
    "glm4_moe": CheckpointWords(
        defaults={"norm_topk_prob": True},
        tensors={r"post_attention_layernorm\.weight": "post_attention_norm.weight"},
        look=num_dense_by_kinds,
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    layers = read_mixed_layers(model, sizes, read_plan(model, sizes), ffn_norm="post_attention_norm")
    return spec_of(model, sizes, read_scored_router(model), layers)
