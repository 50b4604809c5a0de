"""A decoder layer without its routed experts, as one graph: attention, the feeding norm, the router, shared experts.

The residual stream is read and written in place; a graph's inputs and results lie at fixed addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.backends.ggml.attention_graph import AttentionGraph, TokensAt
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.graph_parts import GraphParts, Place
from engine.backends.ggml.kv_cache import SeenRows
from engine.backends.ggml.model_spec import ExpertWeights, LayerWeights, ModelSpec, StoredWeight
from engine.backends.ggml.router_graph import RouterGraph
from engine.backends.ggml.tensor_types import F16, F32, I32, I64

MAX_TENSORS = 128
"""Of one layer's graph, weights included."""


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
    """float16 [rows seen, tokens]: 0 where a token may look, -inf elsewhere."""
    ring_rows: int
    """As `rows`, of windowed layers."""
    ring_mask: int
    """As `mask`, of windowed layers."""
    order: int = 0
    """int32 [experts]: the experts as the router ranks them, the best first; 0: not asked for."""
    weights: int = 0
    """float32 [k]: of the best, given along with `order`."""
    next_orders: tuple[int, ...] = ()
    """The same of the later routers; empty: not asked for."""


class Asked(NamedTuple):
    """A later layer whose router is asked in a layer's graph."""

    layer: int
    mean_error: int
    """Where what is added to its logits before they are ranked lies, float32 [experts]."""


class LayerGraphBuilder:
    """Adds the graphs of a model's layers to a GraphBuilder."""

    def __init__(self, spec: ModelSpec, place: Place, kv: list[tuple[Tensor, ...]]) -> None:
        """`kv`: per layer the tables of the KV cache."""
        self._spec, self._parts = spec, GraphParts(place, spec.norm_eps)
        self._attention = AttentionGraph(spec, self._parts, kv)
        self._router = RouterGraph(spec.router, spec.top_k, self._parts)

    def layer(
        self,
        builder: GraphBuilder,
        number: int,
        at: Addresses,
        num_tok: int,
        seen: SeenRows,
        ahead: Sequence[Asked] = (),
    ) -> list[Tensor]:
        """What a layer's graph computes on `num_tok` tokens, in this order; its attention reads `seen`. `ahead`: the
        layers whose routers are asked as well."""
        spec, weights = self._spec, self._spec.layers[number]
        residual = builder.new_at(at.residual, F32, spec.hidden_dim, num_tok)
        tokens = self._tokens(builder, weights, at, num_tok, seen)
        attended, written = self._attended(builder, number, residual, tokens, at)
        normed = self._norm(builder, attended, weights.ffn_norm, at.normed)
        outputs = [*written, normed]
        if weights.router is not None:
            outputs.append(logits := self._router.logits(builder, weights, normed, at.logits))
            if at.order:
                outputs.append(order := self._router.order(builder, weights, logits, at.order))
                outputs.append(self._router.weights(builder, logits, order, at.weights))
        total = attended
        if weights.dense is not None:
            network = self._network(builder, weights.dense, weights.shared_gate, normed)
            total = builder.placed(builder.add(attended, network), at.residual)
        outputs.append(total)
        for place, asked in enumerate(ahead):
            outputs.append(logits := self.router_ahead(builder, asked.layer, total, at.next_logits[place]))
            if at.next_orders:
                corrected = builder.add(logits, builder.new_at(asked.mean_error, F32, *logits.shape))
                target = spec.layers[asked.layer]
                outputs.append(self._router.order(builder, target, corrected, at.next_orders[place]))
        return outputs

    def asks_ahead(self, builder: GraphBuilder, ahead: int, at: Addresses) -> int:
        """The graph of a later layer's router on the residual as it is: float32 [experts] at the last `next_logits`."""
        residual = builder.new_at(at.residual, F32, self._spec.hidden_dim, 1)
        return builder.graph(self.router_ahead(builder, ahead, residual, at.next_logits[-1]))

    def asks_for_prompt(self, builder: GraphBuilder, ahead: int, residual: int, num_tok: int, logits: int) -> int:
        """The graph of a later layer's router on several tokens' residuals as they are, from the address `residual` on:
        float32 [experts, tokens] at `logits`."""
        rows = builder.new_at(residual, F32, self._spec.hidden_dim, num_tok)
        return builder.graph(self.router_ahead(builder, ahead, rows, logits))

    def router_ahead(self, builder: GraphBuilder, ahead: int, residual: Tensor, address: int) -> Tensor:
        """The logits of layer `ahead`'s router on a residual, through that layer's own norm."""
        weights = self._spec.layers[ahead]
        return self._router.logits(builder, weights, self._norm(builder, residual, weights.ffn_norm), address)

    def head(self, builder: GraphBuilder, residual: int, logits: int) -> Tensor:
        """From one token's residual to the vocabulary's logits, float32 [vocabulary]."""
        spec = self._spec
        normed = self._norm(builder, builder.new_at(residual, F32, spec.hidden_dim, 1), spec.output_norm)
        values = builder.scaled(self._parts.product(builder, spec.output, normed), spec.logit_scale)
        return builder.placed(values, logits)

    def _tokens(
        self, builder: GraphBuilder, weights: LayerWeights, at: Addresses, num_tok: int, seen: SeenRows
    ) -> TokensAt:
        is_windowed = weights.attention.is_windowed
        rows, mask, first, count = (
            (at.ring_rows, at.ring_mask, seen.first, seen.windowed) if is_windowed else (at.rows, at.mask, 0, seen.full)
        )
        return TokensAt(
            builder.new_at(at.positions, I32, num_tok),
            builder.new_at(rows, I64, num_tok),
            builder.new_at(mask, F16, count, num_tok),
            first,
        )

    def _attended(
        self, builder: GraphBuilder, number: int, residual: Tensor, tokens: TokensAt, at: Addresses
    ) -> tuple[Tensor, list[Tensor]]:
        """(the residual after attention, the writes into the KV cache)."""
        weights = self._spec.layers[number]
        hidden = self._norm(builder, residual, weights.attention_norm)
        out, written = self._attention.output(builder, number, weights.attention, hidden, tokens)
        out = builder.scaled(out, self._spec.residual_scale)
        return builder.placed(builder.add(residual, out), at.residual), written

    def _network(
        self, builder: GraphBuilder, network: ExpertWeights, gate: StoredWeight | None, normed: Tensor
    ) -> Tensor:
        """What a dense network or shared experts add to the residual; `gate`: see `LayerWeights.shared_gate`."""
        inner = builder.gated(
            self._parts.projection(builder, network.gate, network.gate_bias, normed),
            self._parts.projection(builder, network.up, network.up_bias, normed),
            self._spec.activation,
        )
        out = self._parts.projection(builder, network.down, network.down_bias, inner)
        if gate is not None:
            out = builder.mul(out, builder.sigmoid(self._parts.product(builder, gate, normed)))
        return builder.scaled(out, self._spec.residual_scale)

    def _norm(self, builder: GraphBuilder, rows: Tensor, weight: StoredWeight, address: int | None = None) -> Tensor:
        normed = self._parts.norm(builder, rows, weight)
        return normed if address is None else builder.placed(normed, address)
