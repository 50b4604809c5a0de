"""DeepSeek-V2 and V3: multi-head latent attention, the first layers dense, shared experts, routing by softmax (V2) or
by sigmoid with a correction bias (V3), among the experts of the best groups.

Source: the definitions in transformers (`DeepseekV2ForCausalLM`, `DeepseekV3ForCausalLM`). llama.cpp's converter splits
`kv_b_proj` into `attn_k_b`, transposed head by head, and `attn_v_b`; its older versions, and checkpoints, keep it
whole, and the key part is transposed when it is loaded (see `transposed_keys`). GGUF gives YaRN's `mscale_all_dim`
times 0.1, and takes `mscale` to be the same, as it is in every published model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.attention_spec import KeyRows, LatentAttention, LatentHeads
from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import num_dense_by_kinds
from engine.backends.ggml.families.rope_parts import read_rope, yarn_magnitude
from engine.backends.ggml.families.shared_parts import (
    MAX_DIM,
    Sizes,
    read_experts,
    read_shared_experts,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX, LayerWeights, ModelSpec, RouterSpec, StoredWeight
from engine.errors import UnsupportedModelError

_GATING: Final = {1: SOFTMAX, 2: SIGMOID}
"""GGUF's numbers in `expert_gating_func`."""


_LATENT_NORM_EPS: Final = 1e-6
"""Of compressed rows in the library, whatever config.json says of the other norms; llama.cpp takes the same for all."""


def _latent_sizes(config: dict[str, Any]) -> Mapping[str, object]:
    plain, rotated = int(config.pop("qk_nope_head_dim", 128)), int(config.pop("qk_rope_head_dim", 64))
    for key in ("head_dim", "qk_head_dim", "aux_loss_alpha", "seq_aux", "ep_size"):  # the last three: of training
        config.pop(key, None)
    return {
        "attention.key_length_mla": plain + rotated,
        "attention.value_length_mla": config.pop("v_head_dim", 128),
        "attention.latent_norm_eps": _LATENT_NORM_EPS,
        "rope.dimension_count": rotated,
    }


def _v2(config: dict[str, Any]) -> Mapping[str, object]:
    method = config.pop("topk_method", "greedy")
    config.pop("scoring_func", None)
    if method == "greedy":
        config.pop("n_group", None)
        config.pop("topk_group", None)
    return {**_latent_sizes(config), "expert_gating_func": 1, "topk_method": method}


def _v3(config: dict[str, Any]) -> Mapping[str, object]:
    for key in ("topk_method", "scoring_func"):
        config.pop(key, None)
    return {**_latent_sizes(config), "expert_gating_func": 2}


def _glm4_lite(config: dict[str, Any]) -> Mapping[str, object]:
    """Where a config.json gives no kinds of layers, all but the first are MoE layers."""
    num_dense = num_dense_by_kinds(config) or {"leading_dense_block_count": 1}
    config.pop("first_k_dense_replace", None)
    return {**_v3(config), **num_dense}


_NUMBERS: Final = {"kv_lora_rank": "attention.kv_lora_rank", "q_lora_rank": "attention.q_lora_rank"}
_TENSORS: Final = {
    r"self_attn\.q_([ab])_proj\.weight": r"attn_q_\1.weight",
    r"self_attn\.q_a_layernorm\.weight": "attn_q_a_norm.weight",
    r"self_attn\.kv_a_proj_with_mqa\.weight": "attn_kv_a_mqa.weight",
    r"self_attn\.kv_a_layernorm\.weight": "attn_kv_a_norm.weight",
    r"self_attn\.kv_b_proj\.weight": "attn_kv_b.weight",
}
CHECKPOINTS: Final = {
    "deepseek_v2": CheckpointWords(_NUMBERS, {"norm_topk_prob": False}, _TENSORS, look=_v2),
    "deepseek_v3": CheckpointWords(
        _NUMBERS, {"norm_topk_prob": True, "n_group": 8, "topk_group": 4}, _TENSORS, look=_v3
    ),
    "glm4_moe_lite": CheckpointWords(
        _NUMBERS, {"norm_topk_prob": True, "routed_scaling_factor": 1.8}, _TENSORS, look=_glm4_lite
    ),
}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    model.require("rope_interleave", True)
    model.require("topk_method", "greedy", "group_limited_greedy")
    model.require("mlp_bias", False)
    model.require("moe_layer_freq", 1)
    sizes, heads = read_sizes(model, is_latent=True), _read_heads(model)
    num_dense = model.integer("leading_dense_block_count", 0, sizes.num_layers - 1, default=0)
    shared_dim = model.integer("expert_shared_count", 0, 1024, default=0) * sizes.expert_dim
    dense_dim = model.integer("feed_forward_length", 1, MAX_DIM, default=sizes.expert_dim)
    query_rank = model.integer("attention.q_lora_rank", 0, MAX_DIM, default=0)
    layers = [
        LayerWeights(
            attention_norm=model.weight(prefix + "attn_norm.weight", sizes.hidden_dim),
            attention=_attention(model, prefix, sizes, heads, query_rank),
            ffn_norm=model.weight(prefix + "ffn_norm.weight", sizes.hidden_dim),
            **_network(model, prefix, sizes, dense_dim if number < num_dense else 0, shared_dim),
        )
        for number, prefix in enumerate(sizes.prefixes())
    ]
    magnitude = 1.0 if model.says("rope.scaling.yarn_log_multiplier") else None
    rope = read_rope(model, heads.rope_dim, is_interleaved=True, magnitude=magnitude)
    return spec_of(model, sizes, _read_router(model, sizes), layers, heads, rope)


def _read_heads(model: StoredModel) -> LatentHeads:
    """Newer files give the compressed lengths as those of keys and values, and the heads' own beside them."""
    own = "_mla" if model.says("attention.key_length_mla") else ""
    key_dim = model.integer(f"attention.key_length{own}", 2, MAX_DIM)
    rope_dim = model.integer("rope.dimension_count", 2, key_dim - 1)
    model.ignore("attention.key_length", "attention.value_length")  # given by the others, or the same
    strength = 10 * model.number("rope.scaling.yarn_log_multiplier", 0, 10, default=0.0)
    factor = model.number("rope.scaling.factor", 0, 1e6, default=1.0)
    return LatentHeads(
        num_heads=model.integer("attention.head_count", 1, 1 << 16),
        rank=model.integer("attention.kv_lora_rank", 1, MAX_DIM),
        plain_dim=key_dim - rope_dim,
        rope_dim=rope_dim,
        value_dim=model.integer(f"attention.value_length{own}", 1, MAX_DIM),
        scale=yarn_magnitude(factor, strength) ** 2 / math.sqrt(key_dim),
        norm_eps=model.number(
            "attention.latent_norm_eps", 0, 1, default=model.number("attention.layer_norm_rms_epsilon", 0, 1)
        ),
    )


def _read_router(model: StoredModel, sizes: Sizes) -> RouterSpec:
    """Files of V2 may not say the kind of scores; a correction bias belongs to V3's."""
    has_bias = any(model.has(prefix + "exp_probs_b.bias") for prefix in sizes.prefixes())
    scoring = _GATING[model.integer("expert_gating_func", 1, 2, default=2 if has_bias else 1)]
    num_groups = model.integer("expert_group_count", 0, sizes.num_experts, default=1) or 1
    if sizes.num_experts % num_groups:
        raise UnsupportedModelError(
            f"{model.name}: {sizes.num_experts} experts are no {num_groups} groups.", "Fetch the model again."
        )
    return RouterSpec(
        scoring,
        model.flag("expert_weights_norm", False),
        model.number("expert_weights_scale", 0, 1e6, default=1.0) or 1.0,
        num_groups,
        model.integer("expert_group_used_count", 0, num_groups, default=num_groups) or num_groups,
        group_best=2 if scoring == SIGMOID else 1,
    )


def _attention(model: StoredModel, prefix: str, sizes: Sizes, heads: LatentHeads, query_rank: int) -> LatentAttention:
    query_dim = heads.num_heads * (heads.plain_dim + heads.rope_dim)
    if model.has(prefix + "attn_kv_b.weight"):
        key_up: StoredWeight | KeyRows
        joint_dim = heads.num_heads * (heads.plain_dim + heads.value_dim)
        value_up = model.weight(prefix + "attn_kv_b.weight", heads.rank, joint_dim)
        key_up = KeyRows.of(value_up, heads.num_heads, heads.plain_dim)
    else:
        key_up = model.weight(prefix + "attn_k_b.weight", heads.plain_dim, heads.rank, heads.num_heads)
        value_up = model.weight(prefix + "attn_v_b.weight", heads.rank, heads.value_dim, heads.num_heads)
    return LatentAttention(
        query=model.weight(prefix + "attn_q_b.weight", query_rank, query_dim)
        if query_rank
        else model.weight(prefix + "attn_q.weight", sizes.hidden_dim, query_dim),
        query_down=model.weight(prefix + "attn_q_a.weight", sizes.hidden_dim, query_rank) if query_rank else None,
        query_norm=model.weight(prefix + "attn_q_a_norm.weight", query_rank) if query_rank else None,
        compress=model.weight(prefix + "attn_kv_a_mqa.weight", sizes.hidden_dim, heads.rank + heads.rope_dim),
        compress_norm=model.weight(prefix + "attn_kv_a_norm.weight", heads.rank),
        key_up=key_up,
        value_up=value_up,
        output=model.weight(prefix + "attn_output.weight", heads.num_heads * heads.value_dim, sizes.hidden_dim),
    )


def _network(model: StoredModel, prefix: str, sizes: Sizes, dense_dim: int, shared_dim: int) -> dict[str, Any]:
    """`dense_dim`: 0 for a MoE layer."""
    if dense_dim:
        return {"dense": model.network(prefix, "", sizes.hidden_dim, dense_dim)}
    correction = model.optional(prefix + "exp_probs_b.bias", sizes.num_experts)
    shared = read_shared_experts(model, prefix, sizes, shared_dim)
    return read_experts(model, prefix, sizes, shared, correction_bias=correction)
