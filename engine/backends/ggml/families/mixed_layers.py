"""Layers of families where some are dense, and the others MoE with shared experts and a correction of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.backends.ggml.families.shared_parts import (
    MAX_DIM,
    PER_HEAD,
    Sizes,
    read_attention,
    read_experts,
    read_shared_experts,
)
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import LayerWeights
from engine.errors import UnsupportedModelError


class LayerPlan(NamedTuple):
    """Which layers are dense, and how wide networks are."""

    num_dense: int
    """The first layers, which are dense."""
    dense_dim: int
    shared_dim: int
    """Of all shared experts of a layer together; 0: there are none."""


def read_plan(model: StoredModel, sizes: Sizes) -> LayerPlan:
    """By the number of dense layers and of shared experts, which are as wide as a routed one each."""
    num_shared = model.integer("expert_shared_count", 0, 1024, default=0)
    return LayerPlan(
        model.integer("leading_dense_block_count", 0, sizes.num_layers - 1, default=0),
        model.integer("feed_forward_length", 1, MAX_DIM, default=sizes.expert_dim),
        model.integer("expert_shared_feed_forward_length", 0, MAX_DIM, default=num_shared * sizes.expert_dim),
    )


def read_mixed_layers(
    model: StoredModel, sizes: Sizes, plan: LayerPlan, norms: str = PER_HEAD, ffn_norm: str = "ffn_norm"
) -> list[LayerWeights]:
    """Every layer; `norms`: see `read_attention`; `ffn_norm`: the name of the norm behind attention."""
    return [
        _layer(model, prefix, sizes, plan.dense_dim if number < plan.num_dense else 0, plan.shared_dim, norms, ffn_norm)
        for number, prefix in enumerate(sizes.prefixes())
    ]


def _layer(
    model: StoredModel, prefix: str, sizes: Sizes, dense_dim: int, shared_dim: int, norms: str, ffn_norm: str
) -> LayerWeights:
    """`dense_dim`: 0 for a MoE layer."""
    common: dict[str, Any] = read_attention(model, prefix, sizes, norms)
    common["ffn_norm"] = model.weight(f"{prefix}{ffn_norm}.weight", sizes.hidden_dim)
    if dense_dim:
        return LayerWeights(**common, dense=model.network(prefix, "", sizes.hidden_dim, dense_dim))
    shared = read_shared_experts(model, prefix, sizes, shared_dim)
    corrections = [model.optional(prefix + name, sizes.num_experts) for name in ("exp_probs_b.bias", "exp_probs_b")]
    correction = next((found for found in corrections if found is not None), None)
    return LayerWeights(**common, **read_experts(model, prefix, sizes, shared), correction_bias=correction)


def num_dense_by_kinds(config: dict[str, Any]) -> Mapping[str, object]:
    """Takes a config.json's list of layers' kinds, and gives the number of dense ones, which must be the first."""
    kinds = list(config.pop("mlp_layer_types", None) or ())
    if not kinds:
        return {}
    num_dense = next((number for number, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if "dense" in kinds[num_dense:]:
        raise UnsupportedModelError("Dense layers stand between MoE layers.", "Use --backend transformers.")
    return {"leading_dense_block_count": num_dense}
