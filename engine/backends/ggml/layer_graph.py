"""A decoder layer without its routed experts, as one graph: attention, the feeding norm, the router, shared experts.

The residual stream is read and written in place; a graph's inputs and results lie at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import NamedTuple

from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.model_spec import ExpertWeights, LayerWeights, ModelSpec, StoredWeight
from engine.backends.ggml.tensor_types import F16, F32, I32, I64

MAX_TENSORS = 96
"""Of one layer's graph, weights included."""

Place = Callable[[StoredWeight], tuple[int, int]]
"""(address, format in memory) of a resident weight."""


class Addresses(NamedTuple):
    """Where a graph's inputs and results lie."""

    residual: int
    """float32 [hidden, tokens]: the layer's input, and after the graph the residual with all but the routed experts."""
    normed: int
    """float32 [hidden, tokens]: the router's and the experts' input."""
    logits: int
    """float32 [experts, tokens]: of the router."""
    next_logits: tuple[int, ...]
    """The same of later MoE layers' routers on this layer's residual, the one asked alone last; used for one token."""
    positions: int
    """int32 [tokens]"""
    rows: int
    """int64 [tokens]: the rows of the KV cache that the tokens' states go to."""
    mask: int
    """float16 [cached, tokens]: 0 where a token may look, -inf elsewhere."""


class LayerGraphBuilder:
    """Adds the graphs of a model's layers to a GraphBuilder."""

    def __init__(self, spec: ModelSpec, place: Place, kv: list[tuple[Tensor, Tensor]]) -> None:
        self._spec, self._place, self._kv = spec, place, kv

    def layer(
        self,
        builder: GraphBuilder,
        number: int,
        at: Addresses,
        num_tok: int,
        cached_tok: int,
        ahead: Sequence[int] = (),
    ) -> int:
        """The graph of a layer on `num_tok` tokens, with `cached_tok` rows of the KV cache visible at most.
        `ahead`: the layers whose routers are asked as well."""
        spec, weights = self._spec, self._spec.layers[number]
        residual = builder.new_at(at.residual, F32, spec.hidden_dim, num_tok)
        attended, written = self._attention(builder, weights, residual, number, at, num_tok, cached_tok)
        normed = self._norm(builder, attended, weights.ffn_norm, at.normed)
        outputs = [*written, normed]
        if weights.router is not None:
            outputs.append(self._router(builder, weights, normed, at.logits))
        total = attended
        if weights.dense is not None:
            network = self._network(builder, weights.dense, weights.shared_gate, normed)
            total = builder.placed(builder.add(attended, network), at.residual)
        outputs.append(total)
        outputs += [
            self.router_ahead(builder, *each) for each in zip(ahead, repeat(total), at.next_logits, strict=False)
        ]
        return builder.graph(*outputs)

    def asks_ahead(self, builder: GraphBuilder, ahead: int, at: Addresses) -> int:
        """The graph of a later layer's router on the residual as it is: float32 [experts] at the last `next_logits`."""
        residual = builder.new_at(at.residual, F32, self._spec.hidden_dim, 1)
        return builder.graph(self.router_ahead(builder, ahead, residual, at.next_logits[-1]))

    def router_ahead(self, builder: GraphBuilder, ahead: int, residual: Tensor, address: int) -> Tensor:
        """The logits of layer `ahead`'s router on a residual, through that layer's own norm."""
        weights = self._spec.layers[ahead]
        return self._router(builder, weights, self._norm(builder, residual, weights.ffn_norm), address)

    def head(self, builder: GraphBuilder, residual: int, logits: int) -> int:
        """The graph from one token's residual to the vocabulary's logits, float32 [vocabulary]."""
        spec = self._spec
        normed = self._norm(builder, builder.new_at(residual, F32, spec.hidden_dim, 1), spec.output_norm)
        values = builder.scaled(self._product(builder, spec.output, normed), spec.logit_scale)
        return builder.graph(builder.placed(values, logits))

    def _attention(
        self,
        builder: GraphBuilder,
        weights: LayerWeights,
        residual: Tensor,
        number: int,
        at: Addresses,
        num_tok: int,
        cached_tok: int,
    ) -> tuple[Tensor, list[Tensor]]:
        """(the residual after attention, the writes into the KV cache)."""
        spec, dim = self._spec, self._spec.head_dim
        hidden = self._norm(builder, residual, weights.attention_norm)
        positions = builder.new_at(at.positions, I32, num_tok)
        query = self._projection(builder, weights.query, weights.query_bias, hidden)
        query = self._rotated(builder, query, spec.num_heads, weights.query_norm, positions)
        key = self._projection(builder, weights.key, weights.key_bias, hidden)
        key = self._rotated(builder, key, spec.num_kv_heads, weights.key_norm, positions)
        value = self._projection(builder, weights.value, weights.value_bias, hidden)
        rows, (keys, values) = builder.new_at(at.rows, I64, num_tok), self._kv[number]
        width = dim * spec.num_kv_heads
        written = [
            builder.write_rows(keys, builder.reshape(key, width, num_tok), rows),
            builder.write_rows(values, value, rows),
        ]
        mask = builder.new_at(at.mask, F16, cached_tok, num_tok)
        seen = (
            builder.first_rows(keys, spec.num_kv_heads, cached_tok),
            builder.first_rows(values, spec.num_kv_heads, cached_tok),
        )
        scale = dim**-0.5 if spec.attention_scale is None else spec.attention_scale
        mixed = builder.reshape(builder.attention(query, *seen, mask, scale), dim * spec.num_heads, num_tok)
        out = builder.scaled(self._projection(builder, weights.output, weights.output_bias, mixed), spec.residual_scale)
        return builder.placed(builder.add(residual, out), at.residual), written

    def _projection(
        self, builder: GraphBuilder, weight: StoredWeight, bias: StoredWeight | None, hidden: Tensor
    ) -> Tensor:
        projected = self._product(builder, weight, hidden)
        return projected if bias is None else builder.add(projected, self._tensor(builder, bias))

    def _rotated(
        self, builder: GraphBuilder, rows: Tensor, num_heads: int, norm: StoredWeight | None, positions: Tensor
    ) -> Tensor:
        """Rows [heads * dim, tokens] as heads [dim, heads, tokens], with norm and rotary embedding."""
        spec, shape = self._spec, (self._spec.head_dim, num_heads, rows.shape[1])
        if norm is not None and norm.shape == rows.shape[:1] != (spec.head_dim,):
            return self._rope(builder, builder.reshape(self._norm(builder, rows, norm), *shape), positions)
        heads = builder.reshape(rows, *shape)
        if norm is None:
            return self._rope(builder, heads, positions)
        if spec.norms_after_rope:
            return self._norm(builder, self._rope(builder, heads, positions), norm)
        return self._rope(builder, self._norm(builder, heads, norm), positions)

    def _rope(self, builder: GraphBuilder, heads: Tensor, positions: Tensor) -> Tensor:
        spec = self._spec
        return builder.rope(heads, positions, spec.rope_dim, spec.rope_base, spec.context_tok, spec.rope_pairs)

    def _network(
        self, builder: GraphBuilder, network: ExpertWeights, gate: StoredWeight | None, normed: Tensor
    ) -> Tensor:
        """What a dense network or shared experts add to the residual; `gate`: see `LayerWeights.shared_gate`."""
        inner = builder.gated(
            self._projection(builder, network.gate, network.gate_bias, normed),
            self._projection(builder, network.up, network.up_bias, normed),
            self._spec.activation,
        )
        out = self._projection(builder, network.down, network.down_bias, inner)
        if gate is not None:
            out = builder.mul(out, builder.sigmoid(self._product(builder, gate, normed)))
        return builder.scaled(out, self._spec.residual_scale)

    def _router(self, builder: GraphBuilder, weights: LayerWeights, normed: Tensor, address: int) -> Tensor:
        assert weights.router is not None, "of MoE layers alone"
        return builder.placed(self._projection(builder, weights.router, weights.router_bias, normed), address)

    def _norm(self, builder: GraphBuilder, rows: Tensor, weight: StoredWeight, address: int | None = None) -> Tensor:
        normed = builder.rms_norm(rows, self._tensor(builder, weight), self._spec.norm_eps)
        return normed if address is None else builder.placed(normed, address)

    def _product(self, builder: GraphBuilder, weight: StoredWeight, rows: Tensor) -> Tensor:
        return builder.product(self._tensor(builder, weight), rows)

    def _tensor(self, builder: GraphBuilder, weight: StoredWeight) -> Tensor:
        address, type_id = self._place(weight)
        return builder.new_at(address, type_id, *weight.shape)
