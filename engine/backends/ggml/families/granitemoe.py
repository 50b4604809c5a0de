"""Granite 3 MoE: as Mixtral, with multipliers of the embedding, the residual, attention and the logits, and shared
experts in some.

Source: the definitions in transformers (`GraniteMoeForCausalLM`, `GraniteMoeSharedForCausalLM`). Rows of queries and
keys: see `llama`.
"""

from __future__ import annotations

from typing import Any, Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.rope_parts import read_rope
from engine.backends.ggml.families.shared_parts import (
    MAX_DIM,
    NO_NORMS,
    grouped_heads,
    read_attention,
    read_experts,
    read_shared_experts,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX_OF_CHOSEN, LayerWeights, ModelSpec, RouterSpec

_WORDS: Final = CheckpointWords(
    numbers={
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "attention_multiplier": "attention.scale",
        "logits_scaling": "logit_scale",
        "shared_intermediate_size": "expert_shared_feed_forward_length",
    },
    defaults={"attention_multiplier": 1.0, "rms_norm_eps": 1e-6},
    tensors={
        r"block_sparse_moe\.router\.layer\.weight": "ffn_gate_inp.weight",
        r"block_sparse_moe\.output_linear\.weight": "ffn_down_exps.weight",
        r"shared_mlp\.output_linear\.weight": "ffn_down_shexp.weight",
    },
    fused={
        r"block_sparse_moe\.input_linear\.weight": ("ffn_gate.{}.weight", "ffn_up.{}.weight"),
        r"shared_mlp\.input_linear\.weight": ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"),
    },
)
CHECKPOINTS: Final = {"granitemoe": _WORDS, "granitemoeshared": _WORDS}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # the experts' length
    model.require("rope.scaling.finetuned", True)  # llama.cpp computes no rotary embeddings without it
    shared_width = model.integer("expert_shared_feed_forward_length", 0, MAX_DIM, default=0)
    scales: dict[str, Any] = {
        name: model.number(key, 0, 1e6, default=1.0)
        for name, key in (("embedding_scale", "embedding_scale"), ("residual_scale", "residual_scale"))
    }
    attention_scale = model.number("attention.scale", 0, 1e6, default=0.0) or None
    divisor = model.number("logit_scale", 1e-6, 1e6, default=1.0)
    layers = [
        LayerWeights(
            **read_attention(model, prefix, sizes, NO_NORMS),
            ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
            **read_experts(model, prefix, sizes, read_shared_experts(model, prefix, sizes, shared_width)),
        )
        for prefix in sizes.prefixes()
    ]
    return spec_of(
        model,
        sizes,
        RouterSpec(SOFTMAX_OF_CHOSEN, False, scales["residual_scale"]),
        layers,
        grouped_heads(sizes, attention_scale),
        read_rope(model, sizes.rope_dim, is_interleaved=model.is_converted),
        logit_scale=1 / divisor,
        **scales,
    )
