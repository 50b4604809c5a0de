"""MiniMax-M2: norms over the whole projection of queries and keys, rotary embeddings on a part of a head, every layer a
MoE, sigmoid routing with a correction bias.

Source: the definition in transformers (`MiniMaxM2ForCausalLM`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import LayerPlan, read_mixed_layers
from engine.backends.ggml.families.shared_parts import PER_PROJECTION, read_scored_router, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec


def _rotated_part(config: dict[str, Any]) -> Mapping[str, object]:
    rotary_dim = config.pop("rotary_dim", None)
    return {} if rotary_dim is None else {"rope.dimension_count": rotary_dim}


CHECKPOINTS: Final = {
    "minimax_m2": CheckpointWords(
        defaults={"rope_theta": 5e6, "head_dim": 128},
        tensors={
            r"block_sparse_moe\.experts\.(\d+)\.w1\.weight": r"ffn_gate.\1.weight",
            r"block_sparse_moe\.experts\.(\d+)\.w2\.weight": r"ffn_down.\1.weight",
            r"block_sparse_moe\.experts\.(\d+)\.w3\.weight": r"ffn_up.\1.weight",
            r"block_sparse_moe\.gate\.weight": "ffn_gate_inp.weight",
            r"block_sparse_moe\.e_score_correction_bias": "exp_probs_b.bias",
        },
        look=_rotated_part,
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # the experts' length once more
    layers = read_mixed_layers(model, sizes, LayerPlan(0, 0, 0), PER_PROJECTION)
    return spec_of(model, sizes, read_scored_router(model, normalises=True), layers)
