"""Hunyuan 3: head norms, the first layers dense, shared experts, sigmoid routing with a correction bias.

Source: the definition in transformers (`HYV3ForCausalLM`).
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import num_dense_by_kinds, read_mixed_layers, read_plan
from engine.backends.ggml.families.shared_parts import read_scored_router, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec

CHECKPOINTS: Final = {
    "hy_v3": CheckpointWords(
        numbers={"num_shared_experts": "expert_shared_count", "router_scaling_factor": "expert_weights_scale"},
        defaults={"router_scaling_factor": 2.826, "rms_norm_eps": 1e-5, "rope_theta": 11_158_840.0, "head_dim": 128},
        tensors={
            r"mlp\.e_score_correction_bias": "exp_probs_b.bias",
            r"mlp\.expert_bias": "exp_probs_b.bias",
            r"mlp\.router\.gate\.weight": "ffn_gate_inp.weight",
            r"mlp\.shared_mlp\.(gate|up|down)_proj\.weight": r"ffn_\1_shexp.weight",
        },
        look=lambda config: {"expert_weights_norm": True, **num_dense_by_kinds(config)},
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("enable_moe_fp32_combine", "mlp_bias")  # sums are float32 here; biases would be tensors, and refused
    layers = read_mixed_layers(model, sizes, read_plan(model, sizes))
    return spec_of(model, sizes, read_scored_router(model), layers)
