"""What a family says of a model: its numbers, and which stored tensor plays which role. Made by `families`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

SOFTMAX: Final = "softmax"
SIGMOID: Final = "sigmoid"
SOFTMAX_OF_CHOSEN: Final = "softmax of the chosen"
"""Kinds of scoring, see `RouterSpec`."""

SILU: Final = "silu"
GELU: Final = "gelu"
"""Activations of a gated network: f(gate) * up. GELU is the exact one, by the error function."""

NEIGHBOURS: Final = 0
HALVES: Final = 2
"""What rotary embeddings rotate together, by ggml's numbers: dimension 2i with 2i + 1, or i with i + n/2."""


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
        """One of a stack [..., count]."""
        name, type_id, shape, path, file_offset, num_bytes = self
        part_bytes = num_bytes // shape[-1]
        return StoredWeight(name, type_id, shape[:-1], path, file_offset + number * part_bytes, part_bytes)

    def row_halves(self) -> tuple[StoredWeight, StoredWeight]:
        """The first and the second half of a matrix's rows."""
        half = self._replace(shape=(self.shape[0], self.shape[1] // 2), num_bytes=self.num_bytes // 2)
        return half, half._replace(file_offset=self.file_offset + half.num_bytes)


class ExpertWeights(NamedTuple):
    """A gated network's matrices: a routed expert's, shared experts', or a dense layer's. Biases are float32."""

    gate: StoredWeight
    up: StoredWeight
    down: StoredWeight
    gate_bias: StoredWeight | None = None
    up_bias: StoredWeight | None = None
    down_bias: StoredWeight | None = None

    def stored(self) -> tuple[StoredWeight, ...]:
        """Its tensors, in the order in which they lie in a slot."""
        return tuple(weight for weight in self if weight is not None)


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """How a router's logits become experts and weights: the k experts of the best scores, weighted by their scores.

    Scores are the softmax over all experts or the sigmoid of the logits; or the logits choose and the weights are the
    softmax over the k chosen. Where a layer has a correction bias, it is added for the choice alone (DeepSeek-V3,
    section 2.1.2). Groups: experts are divided evenly, and only those of the best groups can be chosen (DeepSeek-V2,
    section 2.1.2).
    """

    scoring: str
    normalises: bool
    """The k weights are divided by their sum."""
    scale: float = 1.0
    """Of the weights, in the end."""
    num_groups: int = 1
    num_groups_used: int = 1
    group_best: int = 2
    """A group is ranked by the sum of so many of its best scores."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer's tensors. None: the family has none there."""

    attention_norm: StoredWeight
    query: StoredWeight
    key: StoredWeight
    value: StoredWeight
    output: StoredWeight
    ffn_norm: StoredWeight
    """Before the router and the experts."""
    query_bias: StoredWeight | None = None
    key_bias: StoredWeight | None = None
    value_bias: StoredWeight | None = None
    output_bias: StoredWeight | None = None
    query_norm: StoredWeight | None = None
    """[head dim]: of every head for itself; longer: of the whole projection."""
    key_norm: StoredWeight | None = None
    router: StoredWeight | None = None
    """None: a dense layer."""
    router_bias: StoredWeight | None = None
    """Added to the router's logits."""
    correction_bias: StoredWeight | None = None
    """Added to the router's scores for the choice of experts alone."""
    dense: ExpertWeights | None = None
    """The one feed-forward network of a dense layer, or the shared experts of a MoE layer."""
    shared_gate: StoredWeight | None = None
    """[hidden, 1]: the sigmoid of this product scales what the shared experts give."""
    experts: tuple[ExpertWeights, ...] = ()

    def resident(self) -> Iterator[StoredWeight]:
        """Every tensor but the routed experts'."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, StoredWeight):
                yield value
            elif isinstance(value, ExpertWeights):
                yield from value.stored()

    def vectors(self) -> Iterator[StoredWeight]:
        """Norms, biases and the router: what is small, and held as float32."""
        for weight in self.resident():
            if len(weight.shape) == 1 or weight is self.router or weight is self.shared_gate:
                yield weight


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
    activation: str = SILU
    rope_pairs: int = HALVES
    norms_after_rope: bool = False
    """Whether query and key norms follow the rotary embedding."""
    attention_scale: float | None = None
    """Of the products of queries and keys; None: 1 / sqrt(head dim)."""
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    """Of what attention and the feed-forward network each add to the residual."""
    logit_scale: float = 1.0

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Numbers of the layers with routed experts."""
        return tuple(number for number, layer in enumerate(self.layers) if layer.router is not None)

    def resident(self) -> Mapping[str, StoredWeight]:
        """Every tensor that stays in memory, by its name in the file: all but routed experts and an untied embedding,
        whose rows are read when a token needs them."""
        found = {weight.name: weight for layer in self.layers for weight in layer.resident()}
        return found | {weight.name: weight for weight in (self.output_norm, self.output)}

    def layer_kinds(self) -> list[int]:
        """The number of the first layer of every kind: layers of one kind have tensors of the same shapes."""
        first: dict[tuple[tuple[int, ...] | None, ...], int] = {}
        for number, layer in enumerate(self.layers):
            values = [getattr(layer, field.name) for field in fields(layer)]
            shapes = [value.shape if isinstance(value, StoredWeight) else None for value in values]
            first.setdefault((*shapes, layer.dense.gate.shape if layer.dense else None), number)
        return list(first.values())
