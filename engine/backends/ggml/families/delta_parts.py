"""What families with recurrent layers have in common: a Gated DeltaNet in most layers, gated heads in the others, and
shared experts behind a gate in all."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from engine.backends.ggml.delta_spec import DeltaAttention, DeltaHeads
from engine.backends.ggml.families.rope_parts import read_rope
from engine.backends.ggml.families.shared_parts import (
    MAX_DIM,
    MAX_LAYERS,
    Sizes,
    read_attention,
    read_experts,
    read_shared_experts,
    read_shared_gate,
    read_sizes,
    spec_of,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import SOFTMAX, LayerWeights, ModelSpec, RouterSpec, StoredWeight
from engine.backends.ggml.stored_weight import DECAY, ONE_MORE, ROWS, Made
from engine.backends.ggml.tensor_types import F32
from engine.errors import CheckpointError

NUMBERS: Final = {
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
TENSORS: Final = {
    r"linear_attn\.conv1d\.weight": "ssm_conv1d.weight",
    r"linear_attn\.dt_bias": "ssm_dt.bias",
    r"linear_attn\.A_log": "ssm_a",
    r"linear_attn\.norm\.weight": "ssm_norm.weight",
    r"linear_attn\.out_proj\.weight": "ssm_out.weight",
    r"post_attention_layernorm\.weight": "post_attention_norm.weight",
}
DEFAULTS: Final[Mapping[str, object]] = {"partial_rotary_factor": 0.25, "norm_topk_prob": True}
_PLUS_ONE: Final = ("attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm", "output_norm")
"""Norms that the library multiplies by 1 plus the weight."""


def look(config: dict[str, Any]) -> Mapping[str, object]:
    """Numbers that config.json has no word of its own for; see `CheckpointWords`."""
    found: dict[str, object] = {
        "ssm.inner_size": config.pop("linear_value_head_dim", 128) * config.get("linear_num_value_heads", 32)
    }
    kinds = config.pop("layer_types", None)
    if isinstance(kinds, list):
        found["attention.recurrent_layers"] = [kind == "linear_attention" for kind in kinds]
    return found


def make_vectors(weights: dict[str, StoredWeight]) -> None:
    """Replaces a checkpoint's vectors by what llama.cpp's converter makes of them."""
    for name, weight in weights.items():
        part = name.removesuffix(".weight").rpartition(".")[2]
        if part in _PLUS_ONE:
            weights[name] = _vector(weight, ONE_MORE)
        elif part == "ssm_a":
            weights[name] = _vector(weight, DECAY)
        elif part == "ssm_conv1d" and len(weight.shape) == 3 and weight.shape[1] == 1:
            weights[name] = weight._replace(shape=weight.shape[::2])


def _vector(weight: StoredWeight, kind: str) -> StoredWeight:
    num_values = weight.shape[0] if len(weight.shape) == 1 else 0
    return weight._replace(type_id=F32, num_bytes=4 * num_values, made=Made(kind, (weight,)))


def read_delta_model(model: StoredModel, is_tiled: bool) -> ModelSpec:
    """`is_tiled`: see `DeltaHeads`. Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    model.ignore("feed_forward_length")  # of dense layers, which are refused
    heads, recurrent = _read_heads(model, is_tiled), _recurrent_layers(model, sizes)
    shared_dim = model.integer("expert_shared_feed_forward_length", 1, MAX_DIM)
    layers = [
        LayerWeights(
            **(
                _delta(model, prefix, sizes, heads)
                if is_recurrent
                else read_attention(model, prefix, sizes, gated=True)
            ),
            ffn_norm=model.weight(prefix + "post_attention_norm.weight", sizes.hidden_dim),
            **read_experts(model, prefix, sizes, read_shared_experts(model, prefix, sizes, shared_dim)),
            shared_gate=read_shared_gate(model, prefix, sizes),
        )
        for prefix, is_recurrent in zip(sizes.prefixes(), recurrent, strict=True)
    ]
    scale = model.number("expert_weights_scale", 0, 1e6, default=1.0) or 1.0
    router = RouterSpec(SOFTMAX, model.flag("expert_weights_norm", True), scale)
    rope = read_rope(model, sizes.rope_dim, has_sections=True)
    return spec_of(model, sizes, router, layers, rope=rope, delta=heads)


def _read_heads(model: StoredModel, is_tiled: bool) -> DeltaHeads:
    num_value_heads = model.integer("ssm.time_step_rank", 1, 1 << 16)
    dim = model.integer("ssm.state_size", 1, 1 << 16)
    model.require("ssm.inner_size", dim * num_value_heads)  # keys and values of one length
    num_key_heads = model.integer("ssm.group_count", 1, num_value_heads)
    if num_value_heads % num_key_heads:
        raise CheckpointError(
            f"{model.name}: {num_key_heads} key heads cannot share {num_value_heads} value heads.",
            "Fetch the model again.",
        )
    return DeltaHeads(num_key_heads, num_value_heads, dim, model.integer("ssm.conv_kernel", 2, 64), is_tiled)


def _recurrent_layers(model: StoredModel, sizes: Sizes) -> list[bool]:
    """Where the model does not say, all but every fourth layer are."""
    stored = model.list_of("attention.recurrent_layers", model.integer("block_count", 1, MAX_LAYERS))
    period = model.integer("full_attention_interval", 1, sizes.num_layers + 1, default=4)
    if isinstance(stored, list):
        return [bool(is_recurrent) for is_recurrent in stored[: sizes.num_layers]]
    return [(number + 1) % period != 0 for number in range(sizes.num_layers)]


def _delta(model: StoredModel, prefix: str, sizes: Sizes, heads: DeltaHeads) -> dict[str, Any]:
    """A recurrent layer's attention, by the names of `LayerWeights`."""
    hidden, per_head = sizes.hidden_dim, (heads.num_value_heads,)
    mixed, gate = _mixed_and_gate(model, prefix, hidden, heads)
    beta, alpha = _beta_and_alpha(model, prefix, hidden, heads)
    attention = DeltaAttention(
        *(mixed, gate, beta, alpha),
        conv=model.weight(prefix + "ssm_conv1d.weight", heads.conv_tok, heads.mixed_dim),
        decay=model.weight(prefix + "ssm_a", *per_head),
        decay_bias=model.weight(prefix + "ssm_dt.bias", *per_head),
        norm=model.weight(prefix + "ssm_norm.weight", heads.dim),
        output=model.weight(prefix + "ssm_out.weight", heads.value_dim, hidden),
    )
    return {"attention_norm": model.weight(prefix + "attn_norm.weight", hidden), "attention": attention}


def _mixed_and_gate(
    model: StoredModel, prefix: str, hidden: int, heads: DeltaHeads
) -> tuple[StoredWeight, StoredWeight]:
    """Older GGUF files, and checkpoints of some, hold both in one matrix: of each key head its query, key, values, and
    gates."""
    joint = model.optional(prefix + "ssm_in.weight", hidden, heads.mixed_dim + heads.value_dim)
    if joint is None:
        return (
            model.weight(prefix + "attn_qkv.weight", hidden, heads.mixed_dim),
            model.weight(prefix + "attn_gate.weight", hidden, heads.value_dim),
        )
    values = heads.value_dim // heads.num_key_heads
    query, key, value, gate = _by_key_head(heads, (heads.dim, heads.dim, values, values))
    return _rows(joint, "mixed", query + key + value), _rows(joint, "gate", gate)


def _beta_and_alpha(
    model: StoredModel, prefix: str, hidden: int, heads: DeltaHeads
) -> tuple[StoredWeight, StoredWeight]:
    """As `_mixed_and_gate`."""
    joint = model.optional(prefix + "ssm_ba.weight", hidden, 2 * heads.num_value_heads)
    if joint is None:
        beta, alpha = (model.weight(f"{prefix}ssm_{part}.weight", hidden, heads.num_value_heads) for part in _SPLIT)
        return beta, alpha
    each = heads.num_value_heads // heads.num_key_heads
    runs = _by_key_head(heads, (each, each))
    return _rows(joint, "beta", runs[0]), _rows(joint, "alpha", runs[1])


_SPLIT: Final = ("beta", "alpha")
_Runs = tuple[tuple[int, int], ...]


def _by_key_head(heads: DeltaHeads, lengths: tuple[int, ...]) -> list[_Runs]:
    """The runs of rows of each part of a joint matrix in which every key head has so many rows of each."""
    starts = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    return [
        tuple((head * starts[-1] + start, end - start) for head in range(heads.num_key_heads))
        for start, end in pairwise(starts)
    ]


def _rows(joint: StoredWeight, part: str, runs: _Runs) -> StoredWeight:
    count = sum(length for _, length in runs)
    return joint._replace(
        name=f"{joint.name} ({part})",
        shape=(joint.shape[0], count),
        num_bytes=joint.num_bytes // joint.shape[1] * count,
        made=Made(ROWS, (joint,), runs=runs),
    )
