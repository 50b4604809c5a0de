"""What a family says of a model: its numbers, and which stored tensor plays which role. Made by `families`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from engine.backends.ggml.attention_spec import Attention, Heads, KeyRows, LatentAttention, RopeSpec
from engine.backends.ggml.delta_spec import DeltaAttention, DeltaHeads
from engine.backends.ggml.stored_weight import StoredWeight as StoredWeight

SOFTMAX: Final = "softmax"
SIGMOID: Final = "sigmoid"
SOFTMAX_OF_CHOSEN: Final = "softmax of the chosen"
"""Kinds of scoring, see `RouterSpec`."""

SILU: Final = "silu"
GELU: Final = "gelu"
CLAMPED: Final = "clamped silu"
"""Activations of a gated network: f(gate) * up. GELU is the exact one, by the error function. CLAMPED is gpt-oss's:
gate * sigmoid(1.702 gate) * (up + 1), of gate at most 7 and up from -7 to 7."""


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
    attention: Attention
    ffn_norm: StoredWeight
    """Before the router and the experts."""
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
        yield from self.attention.stored()
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, StoredWeight):
                yield value
            elif isinstance(value, ExpertWeights):
                yield from value.stored()

    def vectors(self) -> Iterator[StoredWeight]:
        """Norms, biases, the router, a convolution: what is small, and held as float32."""
        conv = self.attention.conv if isinstance(self.attention, DeltaAttention) else None
        for weight in self.resident():
            if len(weight.shape) == 1 or weight in (self.router, self.shared_gate, conv):
                yield weight


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder of one known family. Lengths in values."""

    family: str
    hidden_dim: int
    heads: Heads
    rope: RopeSpec
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
    window_tok: int = 0
    """Tokens that a windowed layer's attention sees, the token itself included; 0: no layer has a window."""
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    """Of what attention and the feed-forward network each add to the residual."""
    logit_scale: float = 1.0
    delta: DeltaHeads | None = None
    """Of recurrent layers; None: the model has none."""

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Numbers of the layers with routed experts."""
        return tuple(number for number, layer in enumerate(self.layers) if layer.router is not None)

    @property
    def recurrent_layers(self) -> tuple[int, ...]:
        """Numbers of the layers that keep a state in place of keys and values."""
        return tuple(number for number, layer in enumerate(self.layers) if layer.attention.is_recurrent)

    def resident(self) -> Mapping[str, StoredWeight]:
        """Every tensor that stays in memory, by its name in the file: all but routed experts and an untied embedding,
        whose rows are read when a token needs them."""
        found = {weight.name: weight for layer in self.layers for weight in layer.resident()}
        return found | {weight.name: weight for weight in (self.output_norm, self.output)}

    def transposed(self) -> Mapping[str, KeyRows]:
        """Matrices that are made of resident ones, by their own names."""
        found = [layer.attention.key_up for layer in self.layers if isinstance(layer.attention, LatentAttention)]
        return {each.held.name: each for each in found if isinstance(each, KeyRows)}

    def layer_kinds(self) -> list[int]:
        """The number of the first layer of every kind: layers of one kind have tensors of the same shapes."""
        first: dict[tuple[object, ...], int] = {}
        for number, layer in enumerate(self.layers):
            shapes = tuple(weight.shape for weight in layer.resident())
            first.setdefault((layer.attention.is_windowed, layer.router is None, shapes), number)
        return list(first.values())
