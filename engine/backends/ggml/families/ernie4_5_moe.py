"""ERNIE 4.5 MoE: no head norms, the first layers dense, shared experts, softmax routing with a correction bias.

Source: the definition in transformers (`Ernie4_5_MoeForCausalLM`). Its rotary embeddings pair neighbours, in GGUF files
and in the library's checkpoints alike. Dense layers between MoE layers are refused, as by llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import read_mixed_layers, read_plan
from engine.backends.ggml.families.rope_parts import read_rope
from engine.backends.ggml.families.shared_parts import NO_NORMS, read_scored_router, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, ModelSpec
from engine.errors import UnsupportedModelError


def _moe_layers(config: dict[str, Any]) -> Mapping[str, object]:
    """MoE layers must go on to the last layer."""
    last = config.pop("moe_layer_end_index", -1)
    if last not in (-1, int(config["num_hidden_layers"]) - 1):
        raise UnsupportedModelError(f"moe_layer_end_index is {last}.", "Use --backend transformers.")
    width, count = config.get("moe_intermediate_size", 1536), config.pop("moe_num_shared_experts", 2)
    return {"expert_shared_feed_forward_length": width * count}


CHECKPOINTS: Final = {
    "ernie4_5_moe": CheckpointWords(
        numbers={
            "moe_layer_start_index": "leading_dense_block_count",
            "moe_layer_interval": "interleave_moe_layer_step",
        },
        defaults={"moe_layer_start_index": 1, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0},
        tensors={r"mlp\.moe_statics\.e_score_correction_bias": "exp_probs_b.bias"},
        look=_moe_layers,
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.require("interleave_moe_layer_step", 0, 1)
    model.ignore("moe_norm_min", "use_bias")  # a bound that no sum of k probabilities comes near; biases by presence
    layers = read_mixed_layers(model, sizes, read_plan(model, sizes), NO_NORMS)
    rope = read_rope(model, sizes.rope_dim, is_interleaved=True)
    return spec_of(model, sizes, read_scored_router(model, SOFTMAX, normalises=True), layers, rope=rope)
