"""Hunyuan-A13B: head norms behind the rotary embedding, every layer a MoE with shared experts, softmax routing.

Source: the definition in transformers (`HunYuanMoEV1ForCausalLM`). Its rotary embeddings of the kind `dynamic` with an
`alpha` are plain ones of a larger base, which is what llama.cpp's converter writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import LayerPlan, read_mixed_layers
from engine.backends.ggml.families.shared_parts import MAX_DIM, grouped_heads, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, ModelSpec, RouterSpec
from engine.errors import UnsupportedModelError


def _plain_numbers(config: dict[str, Any]) -> Mapping[str, object]:
    """One number for what the library also takes as a list of one a layer, and the rotary embeddings' base."""
    found = {}
    for key, word in (("moe_topk", "expert_used_count"), ("num_experts", "expert_count")):
        value = config.pop(key, 1)
        values = set(value) if isinstance(value, list) else {value}
        if len(values) != 1:
            raise UnsupportedModelError(f"{key} differs from layer to layer.", "Use --backend transformers.")
        found[word] = values.pop()
    found["expert_shared_feed_forward_length"] = config.get("intermediate_size")
    rope: dict[str, Any] = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    if rope.get("alpha") and "dynamic" in (rope.get("rope_type"), rope.get("type")):
        dim, base = int(config["head_dim"]), float(rope.get("rope_theta") or config.get("rope_theta", 10_000.0))
        config.pop("rope_scaling", None)
        config["rope_parameters"] = {"rope_theta": base * float(rope["alpha"]) ** (dim / (dim - 2))}
    return found


CHECKPOINTS: Final = {
    "hunyuan_v1_moe": CheckpointWords(
        defaults={"rms_norm_eps": 1e-5},
        tensors={
            r"mlp\.gate\.wg\.weight": "ffn_gate_inp.weight",
            r"mlp\.shared_mlp\.(gate|up|down)_proj\.weight": r"ffn_\1_shexp.weight",
            r"self_attn\.query_layernorm\.weight": "attn_q_norm.weight",
            r"self_attn\.key_layernorm\.weight": "attn_k_norm.weight",
        },
        look=_plain_numbers,
    )
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # of dense layers, which the family does not have
    shared_dim = model.integer("expert_shared_feed_forward_length", 1, MAX_DIM)
    layers = read_mixed_layers(model, sizes, LayerPlan(0, 0, shared_dim))
    return spec_of(model, sizes, RouterSpec(SOFTMAX, True), layers, grouped_heads(sizes, norms_after_rope=True))
