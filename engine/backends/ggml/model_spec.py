"""What a family says of a model: its numbers, and which stored tensor plays which role. Made by `families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

SOFTMAX: Final = "softmax"
SIGMOID: Final = "sigmoid"


class StoredWeight(NamedTuple):
    """A tensor as it is stored, in a GGUF or a safetensors file."""

    name: str
    type_id: int
    """ggml's number of its format."""
    shape: tuple[int, ...]
    """In ggml's order: the row length first."""
    path: str
    file_offset: int
    num_bytes: int

    def matrix(self, number: int) -> StoredWeight:
        """One matrix of a stack [in, out, count]."""
        name, type_id, shape, path, file_offset, num_bytes = self
        part_bytes = num_bytes // shape[2]
        return StoredWeight(name, type_id, shape[:2], path, file_offset + number * part_bytes, part_bytes)


class ExpertWeights(NamedTuple):
    """One routed expert's matrices."""

    gate: StoredWeight
    up: StoredWeight
    down: StoredWeight


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How a router's logits become experts and weights.

    Softmax: the k largest probabilities. Sigmoid: the k largest of score plus bias, weighted by the scores alone
    (DeepSeek-V3, section 2.1.2).
    """

    scoring: str
    normalises: bool
    """The k weights are divided by their sum."""
    scale: float


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer's tensors. None: the family has none there."""

    attention_norm: StoredWeight
    query: StoredWeight
    key: StoredWeight
    value: StoredWeight
    output: StoredWeight
    ffn_norm: StoredWeight
    query_bias: StoredWeight | None = None
    key_bias: StoredWeight | None = None
    value_bias: StoredWeight | None = None
    query_norm: StoredWeight | None = None
    key_norm: StoredWeight | None = None
    router: StoredWeight | None = None
    """None: a dense layer."""
    router_bias: StoredWeight | None = None
    dense: ExpertWeights | None = None
    """The one feed-forward network of a dense layer, or the shared experts of a MoE layer."""
    experts: tuple[ExpertWeights, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder of one known family. Lengths in values."""

    family: str
    hidden_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_dim: int
    rope_base: float
    norm_eps: float
    context_tok: int
    vocabulary_tok: int
    top_k: int
    router: RouterSpec
    layers: tuple[LayerWeights, ...]
    embedding: StoredWeight
    output_norm: StoredWeight
    output: StoredWeight
    """The same as `embedding` where the two are tied."""

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Numbers of the layers with routed experts."""
        return tuple(number for number, layer in enumerate(self.layers) if layer.router is not None)

    def resident(self) -> Mapping[str, StoredWeight]:
        """Every tensor that stays in memory, by its name in the file: all but routed experts and an untied embedding,
        whose rows are read when a token needs them."""
        found = {}
        for layer in self.layers:
            for weight in (
                *(layer.attention_norm, layer.query, layer.key, layer.value, layer.output, layer.ffn_norm),
                *(layer.query_bias, layer.key_bias, layer.value_bias, layer.query_norm, layer.key_norm),
                *(layer.router, layer.router_bias, *(layer.dense or ())),
            ):
                if weight is not None:
                    found[weight.name] = weight
        for weight in (self.output_norm, self.output):
            found[weight.name] = weight
        return found
