"""gpt-oss: every second layer sees a window, attention has a sink a head, everything has biases, and the routed experts
are gated by a clamped SwiGLU. The k chosen logits become weights by a softmax over them.

Source: the definition in transformers (`GptOssForCausalLM`). YaRN's ramp is not rounded to whole pairs there; llama.cpp
rounds it, which shows from some thousand tokens on. llama.cpp's converter takes gate and up apart, whose rows alternate
in a checkpoint, turns matrices, and rearranges MXFP4 blocks: `gptoss_checkpoint` has the like done as experts are read.
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.gptoss_checkpoint import make_experts
from engine.backends.ggml.families.rope_parts import read_rope
from engine.backends.ggml.families.shared_parts import (
    NO_NORMS,
    Sizes,
    read_attention,
    read_experts,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import CLAMPED, SOFTMAX_OF_CHOSEN, LayerWeights, ModelSpec, RouterSpec

CHECKPOINTS: Final = {
    "gpt_oss": CheckpointWords(
        numbers={"sliding_window": "attention.sliding_window"},
        defaults={"rms_norm_eps": 1e-5, "rope_theta": 150_000.0, "swiglu_limit": 7.0, "swiglu_alpha": 1.702},
        makes=make_experts,
        tensors={
            r"self_attn\.sinks": "attn_sinks.weight",
            r"mlp\.router\.(weight|bias)": r"ffn_gate_inp.\1",
            r"post_attention_layernorm\.weight": "post_attention_norm.weight",
        },
    )
}
_WINDOW_PERIOD: Final = 2
_SOFTMAX_OF_CHOSEN: Final = 3
"""In GGUF."""


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model, _WINDOW_PERIOD)
    model.require("hidden_act", "silu")
    model.require("expert_gating_func", _SOFTMAX_OF_CHOSEN)
    model.require("swiglu_limit", 7.0)
    model.require("swiglu_alpha", 1.702)
    model.ignore("feed_forward_length", "experts_per_token", "initial_context_length")  # said by other keys
    layers = [_layer(model, prefix, sizes) for prefix in sizes.prefixes()]
    rope = read_rope(model, sizes.rope_dim, truncates=False)
    return spec_of(model, sizes, RouterSpec(SOFTMAX_OF_CHOSEN, False), layers, rope=rope, activation=CLAMPED)


def _layer(model: StoredModel, prefix: str, sizes: Sizes) -> LayerWeights:
    bias = model.weight(prefix + "ffn_gate_inp.bias", sizes.num_experts)
    return LayerWeights(
        **read_attention(model, prefix, sizes, NO_NORMS),
        ffn_norm=model.weight(prefix + "post_attention_norm.weight", sizes.hidden_dim),
        **read_experts(model, prefix, sizes, router_bias=bias),
    )
