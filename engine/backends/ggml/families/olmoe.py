"""OLMoE: a norm over the whole projection of queries and of keys, every layer a MoE, softmax routing.

Source: the definition in transformers (`OlmoeForCausalLM`). Clipped projections (`clip_qkv`) are refused: no released
model has them, and llama.cpp does not compute them for this family.
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.shared_parts import PER_PROJECTION, read_attention, read_experts, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, LayerWeights, ModelSpec, RouterSpec

CHECKPOINTS: Final = {
    "olmoe": CheckpointWords(defaults={"norm_topk_prob": False, "rms_norm_eps": 1e-5}),
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # the experts' length once more
    layers = [
        LayerWeights(
            **read_attention(model, prefix, sizes, PER_PROJECTION),
            ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
            **read_experts(model, prefix, sizes),
        )
        for prefix in sizes.prefixes()
    ]
    return spec_of(model, sizes, RouterSpec(SOFTMAX, model.flag("expert_weights_norm", False)), layers)
