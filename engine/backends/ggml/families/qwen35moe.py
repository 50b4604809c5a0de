"""Qwen3.5 MoE: as Qwen3-Next, with the projections of recurrent layers apart.

Source: the definition in transformers (`Qwen3_5MoeForCausalLM`). llama.cpp's converter reorders value heads so that
those of one key head no longer follow each other. Positions of text are the same in all sections of the rotary
embedding, which is then the plain one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.families import delta_parts
from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec


def _look(config: dict[str, Any]) -> Mapping[str, object]:
    for key in [key for key in config if key.startswith("mtp_")]:  # of blocks that predict further tokens
        del config[key]
    config.pop("mamba_ssm_dtype", None)  # states are float32
    rope = config.get("rope_parameters")
    if isinstance(rope, dict):
        config["rope_parameters"] = {key: value for key, value in rope.items() if not key.startswith("mrope_")}
    return delta_parts.look(config)


CHECKPOINTS: Final = {
    "qwen3_5_moe_text": CheckpointWords(
        delta_parts.NUMBERS,
        delta_parts.DEFAULTS,
        {
            **delta_parts.TENSORS,
            r"linear_attn\.in_proj_qkv\.weight": "attn_qkv.weight",
            r"linear_attn\.in_proj_z\.weight": "attn_gate.weight",
            r"linear_attn\.in_proj_b\.weight": "ssm_beta.weight",
            r"linear_attn\.in_proj_a\.weight": "ssm_alpha.weight",
            r"mlp\.experts\.down_proj": "ffn_down_exps.weight",
        },
        {r"mlp\.experts\.gate_up_proj": ("ffn_gate.{}.weight", "ffn_up.{}.weight")},
        makes=delta_parts.make_vectors,
        look=_look,
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    model.require("attn_output_gate", True)
    return delta_parts.read_delta_model(model, is_tiled=model.is_converted)
