"""Qwen3-Next: a Gated DeltaNet in three of four layers, gated heads in the fourth, softmax routing, a shared expert
behind a gate.

Source: the definition in transformers (`Qwen3NextForCausalLM`).
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families import delta_parts
from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec

CHECKPOINTS: Final = {
    "qwen3_next": CheckpointWords(
        delta_parts.NUMBERS,
        delta_parts.DEFAULTS,
        {
            **delta_parts.TENSORS,
            r"linear_attn\.in_proj_qkvz\.weight": "ssm_in.weight",
            r"linear_attn\.in_proj_ba\.weight": "ssm_ba.weight",
        },
        makes=delta_parts.make_vectors,
        look=delta_parts.look,
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    return delta_parts.read_delta_model(model, is_tiled=False)
