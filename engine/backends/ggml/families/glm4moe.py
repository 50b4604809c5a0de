"""GLM-4.5: grouped heads with optional biases and head norms, the first layers dense, shared experts, sigmoid routing
with a correction bias.

Source: the definition in transformers (`Glm4MoeForCausalLM`). Experts in groups are refused (`expert_group_count`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.shared_parts import (
    MAX_DIM,
    Sizes,
    read_attention,
    read_experts,
    read_scored_router,
    read_shared_experts,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import LayerWeights, ModelSpec
from engine.errors import UnsupportedModelError


def _number_of_dense_layers(config: dict[str, Any]) -> Mapping[str, object]:
    kinds = list(config.pop("mlp_layer_types", None) or ())
    if not kinds:
        return {}
    num_dense = next((number for number, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if "dense" in kinds[num_dense:]:
        raise UnsupportedModelError("Dense layers stand between MoE layers.", "Use --backend transformers.")
    return {"leading_dense_block_count": num_dense}


CHECKPOINTS: Final = {
    "glm4_moe": CheckpointWords(
        tensors={r"post_attention_layernorm\.weight": "post_attention_norm.weight"}, look=_number_of_dense_layers
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    num_dense = model.integer("leading_dense_block_count", 0, sizes.num_layers - 1, default=0)
    num_shared = model.integer("expert_shared_count", 0, 1024, default=0)
    model.require("nextn_predict_layers", 0)
    dense_dim = model.integer("feed_forward_length", 1, MAX_DIM, default=sizes.expert_dim)
    layers = [
        _layer(model, prefix, sizes, dense_dim if number < num_dense else 0, num_shared)
        for number, prefix in enumerate(sizes.prefixes())
    ]
    return spec_of(model, sizes, read_scored_router(model), layers)


def _layer(model: StoredModel, prefix: str, sizes: Sizes, dense_dim: int, num_shared: int) -> LayerWeights:
    """`dense_dim`: 0 for a MoE layer."""
    common: dict[str, Any] = read_attention(model, prefix, sizes)
    common["ffn_norm"] = model.weight(prefix + "post_attention_norm.weight", sizes.hidden_dim)
    if dense_dim:
        return LayerWeights(**common, dense=model.network(prefix, "", sizes.hidden_dim, dense_dim))
    shared = read_shared_experts(model, prefix, sizes, sizes.expert_dim * num_shared)
    correction = model.optional(prefix + "exp_probs_b.bias", sizes.num_experts)
    return LayerWeights(**common, **read_experts(model, prefix, sizes, shared), correction_bias=correction)
