"""Attention as part of a layer's graph: with grouped heads, over compressed rows (multi-head latent attention), or
recurrent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.backends.ggml.attention_spec import (
    Attention,
    GroupedAttention,
    GroupedHeads,
    KeyRows,
    LatentAttention,
    LatentHeads,
)
from engine.backends.ggml.delta_graph import StateTensors, delta_output
from engine.backends.ggml.delta_spec import DeltaAttention
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.graph_parts import GraphParts
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.stored_weight import StoredWeight
from engine.backends.ggml.tensor_types import F32


class TokensAt(NamedTuple):
    """The tokens of a graph, for one layer's attention."""

    positions: Tensor
    """int32 [tokens]"""
    rows: Tensor
    """int64 [tokens]: the rows of the layer's tables that their states go to."""
    mask: Tensor
    """float16 [rows seen, tokens]"""
    first_seen: int
    """The first row that is seen; how many there are is the mask's row length."""


class AttentionGraph:
    """Adds a model's attention to graphs."""

    def __init__(self, spec: ModelSpec, parts: GraphParts, kv: list[tuple[Tensor, ...]]) -> None:
        """`kv`: per layer the tables of the KV cache, or `StateTensors`."""
        self._spec, self._parts, self._kv = spec, parts, kv
        self._divisors: Memory | None = None
        if spec.rope.divisors:
            self._divisors = Memory(4 * len(spec.rope.divisors))
            values(self._divisors.bytes, np.float32, len(spec.rope.divisors))[:] = spec.rope.divisors

    def output(
        self, builder: GraphBuilder, number: int, attention: Attention, hidden: Tensor, tokens: TokensAt
    ) -> tuple[Tensor, list[Tensor]]:
        """hidden float32 [hidden, tokens] -> (the same shape, the writes into the KV cache)."""
        heads = self._spec.heads
        if isinstance(attention, DeltaAttention):
            assert self._spec.delta is not None, "the sizes of recurrent layers"
            states = StateTensors(*self._kv[number])
            return delta_output(builder, self._parts, self._spec.delta, attention, states, hidden)
        if isinstance(attention, GroupedAttention):
            assert isinstance(heads, GroupedHeads), "one kind in a model"
            return self._grouped(builder, self._kv[number], attention, heads, hidden, tokens)
        assert isinstance(heads, LatentHeads), "one kind in a model"
        return self._latent(builder, self._kv[number][0], attention, heads, hidden, tokens)

    # -- grouped heads ------------------------------------------------------------------------------------------------

    def _grouped(
        self,
        builder: GraphBuilder,
        tables: tuple[Tensor, ...],
        weights: GroupedAttention,
        heads: GroupedHeads,
        hidden: Tensor,
        tokens: TokensAt,
    ) -> tuple[Tensor, list[Tensor]]:
        parts, num_tok = self._parts, hidden.shape[1]
        query = parts.projection(builder, weights.query, weights.query_bias, hidden)
        gate = None
        if weights.is_gated:
            by_head = builder.reshape(query, 2 * heads.dim, heads.num_heads, num_tok)
            query = builder.columns(by_head, 0, heads.dim)
            gate = builder.sigmoid(builder.contiguous(builder.columns(by_head, heads.dim, heads.dim)))
        query = self._rotated(builder, query, heads.num_heads, heads, weights.query_norm, tokens)
        key = parts.projection(builder, weights.key, weights.key_bias, hidden)
        key = self._rotated(builder, key, heads.num_kv_heads, heads, weights.key_norm, tokens)
        value = parts.projection(builder, weights.value, weights.value_bias, hidden)
        keys, cached = tables
        key = builder.reshape(key, heads.num_kv_heads * heads.dim, num_tok)
        written = [builder.write_rows(keys, key, tokens.rows), builder.write_rows(cached, value, tokens.rows)]
        num_seen = tokens.mask.shape[0]
        seen = [builder.rows_of(each, heads.num_kv_heads, tokens.first_seen, num_seen) for each in (keys, cached)]
        sinks = None if weights.sinks is None else parts.tensor(builder, weights.sinks)
        mixed = builder.attention(query, seen[0], seen[1], tokens.mask, heads.scale, sinks)
        if gate is not None:
            mixed = builder.mul(mixed, gate)
        mixed = builder.reshape(mixed, heads.dim * heads.num_heads, num_tok)
        return parts.projection(builder, weights.output, weights.output_bias, mixed), written

    def _rotated(
        self,
        builder: GraphBuilder,
        rows: Tensor,
        num_heads: int,
        heads: GroupedHeads,
        norm: StoredWeight | None,
        tokens: TokensAt,
    ) -> Tensor:
        """Rows [heads * dim, tokens], or heads [dim, heads, tokens], as the latter with norm and rotary embedding."""
        shape = (heads.dim, num_heads, rows.shape[-1])
        if norm is not None and norm.shape == rows.shape[:1] != (heads.dim,):
            rows, norm = self._parts.norm(builder, rows, norm), None
        by_head = rows if rows.shape == shape else builder.reshape(rows, *shape)
        if norm is None:
            return self._rope(builder, by_head, tokens)
        if heads.norms_after_rope:
            return self._parts.norm(builder, self._rope(builder, by_head, tokens), norm)
        return self._rope(builder, self._parts.norm(builder, by_head, norm), tokens)

    # -- compressed rows ----------------------------------------------------------------------------------------------

    def _latent(
        self,
        builder: GraphBuilder,
        table: Tensor,
        weights: LatentAttention,
        heads: LatentHeads,
        hidden: Tensor,
        tokens: TokensAt,
    ) -> tuple[Tensor, list[Tensor]]:
        """Queries are taken into the space of compressed rows, which serve as keys and as values of all heads
        (DeepSeek-V2, section 2.1.2: W^UK is absorbed into W^UQ)."""
        num_tok = hidden.shape[1]
        compressed = self._parts.product(builder, weights.compress, hidden)
        row = self._parts.norm(
            builder, builder.columns(compressed, 0, heads.rank), weights.compress_norm, heads.norm_eps
        )
        rotated = builder.columns(compressed, heads.rank, heads.rope_dim)
        rotated = self._rope(builder, builder.with_one_head(rotated), tokens)
        states = builder.concat(row, builder.reshape(rotated, heads.rope_dim, num_tok))
        written = [builder.write_rows(table, states, tokens.rows)]
        keys = builder.rows_of(table, 1, tokens.first_seen, tokens.mask.shape[0])
        query = self._latent_query(builder, weights, heads, hidden, tokens)
        mixed = builder.attention(query, keys, builder.columns(keys, 0, heads.rank), tokens.mask, heads.scale)
        out = builder.product_by_head(self._values(builder, weights, heads), mixed)
        out = builder.reshape(builder.contiguous(out), heads.value_dim * heads.num_heads, num_tok)
        return self._parts.product(builder, weights.output, out), written

    def _latent_query(
        self, builder: GraphBuilder, weights: LatentAttention, heads: LatentHeads, hidden: Tensor, tokens: TokensAt
    ) -> Tensor:
        """float32 [rank + rope_dim, heads, tokens]"""
        if weights.query_down is not None:
            hidden = self._parts.product(builder, weights.query_down, hidden)
            if weights.query_norm is not None:
                hidden = self._parts.norm(builder, hidden, weights.query_norm, heads.norm_eps)
        query = self._parts.product(builder, weights.query, hidden)
        query = builder.reshape(query, heads.plain_dim + heads.rope_dim, heads.num_heads, hidden.shape[1])
        plain = builder.columns(query, 0, heads.plain_dim)
        rotated = self._rope(builder, builder.columns(query, heads.plain_dim, heads.rope_dim), tokens)
        key_up = weights.key_up.held if isinstance(weights.key_up, KeyRows) else weights.key_up
        return builder.concat(builder.product_by_head(self._parts.tensor(builder, key_up), plain), rotated)

    def _values(self, builder: GraphBuilder, weights: LatentAttention, heads: LatentHeads) -> Tensor:
        """[rank, value_dim, heads]: stored so, or rows of a joint matrix."""
        whole = self._parts.tensor(builder, weights.value_up)
        if not isinstance(weights.key_up, KeyRows):
            return whole
        return builder.last_rows_by_head(whole, heads.num_heads, heads.value_dim)

    def _rope(self, builder: GraphBuilder, heads: Tensor, tokens: TokensAt) -> Tensor:
        rope, divisors = self._spec.rope, self._divisors
        by = None if divisors is None else builder.new_at(divisors.address, F32, len(rope.divisors))
        return builder.rope(heads, tokens.positions, rope, by)
