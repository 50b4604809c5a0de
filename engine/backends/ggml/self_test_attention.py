"""A part of `self_test`: attention over one compressed row a token, compared with numpy.

It takes every operation that attention is made of: views, a rotary embedding with divisors, rows written into a table,
products by head, sinks, and values that are shorter than keys.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.backends.ggml.attention_spec import RopeSpec
from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import CLAMPED
from engine.backends.ggml.tensor_types import F16, F32, I32, I64, Q8_0

_HEADS, _TOK, _RANK, _ROTATED, _PLAIN, _CACHED = 4, 3, 64, 32, 32, 256
_ROPE: Final = RopeSpec(_ROTATED, 10_000.0, True, tuple(1.0 + 0.25 * pair for pair in range(_ROTATED // 2)), 1.5)
_SCALE: Final = 0.2
_MAX_ERROR: Final = {F16: 5e-3, Q8_0: 3e-2}


def attention_problem(ggml: Ggml, compute: Compute, scratch: Scratch) -> str:
    """What is wrong; empty: nothing."""
    for type_id, largest in _MAX_ERROR.items():
        error = _Trial(ggml, type_id).error(compute, scratch)
        if not error <= largest:
            return f"attention over a cache in {ggml.type_name(type_id).decode()} is wrong by {error:.3g}"
    return ""


class _Trial:
    """Random queries, rows and weights; all of them stay in memory while the graph runs."""

    def __init__(self, ggml: Ggml, type_id: int) -> None:
        self._ggml, self._type_id = ggml, type_id
        self._random, self._memory = np.random.default_rng(type_id), Memory(1 << 20)
        self._builder = GraphBuilder(ggml, 64, 1, 64)

    def error(self, compute: Compute, scratch: Scratch) -> float:
        """Relative, against numpy."""
        builder = self._builder
        query, query_values = self._floats(_PLAIN + _ROTATED, _HEADS, _TOK)
        states, state_values = self._floats(_RANK + _ROTATED, _TOK)
        key_up, key_values = self._floats(_PLAIN, _RANK, _HEADS)
        joint, joint_values = self._floats(_RANK, 3 * _HEADS)
        sinks, sink_values = self._floats(_HEADS)
        divisors, given = self._floats(_ROTATED // 2)
        given[:] = _ROPE.divisors
        positions, position_values = self._placed(I32, np.int32, _TOK)
        rows, row_values = self._placed(I64, np.int64, _TOK)
        mask, mask_values = self._placed(F16, np.float16, _CACHED, _TOK)
        position_values[:], row_values[:] = (5, 6, 7), (0, 1, 2)
        mask_values[:] = -np.inf
        mask_values[:, :_TOK][np.tri(_TOK, dtype=bool)] = 0
        table, _ = self._placed(self._type_id, np.uint8, _RANK + _ROTATED, _CACHED)
        rotated = builder.rope(builder.columns(query, _PLAIN, _ROTATED), positions, _ROPE, divisors)
        asked = builder.concat(builder.product_by_head(key_up, builder.columns(query, 0, _PLAIN)), rotated)
        keys = builder.rows_of(table, 1, 0, _CACHED)
        mixed = builder.attention(asked, keys, builder.columns(keys, 0, _RANK), mask, _SCALE, sinks)
        out = builder.contiguous(builder.product_by_head(builder.last_rows_by_head(joint, _HEADS, 2), mixed))
        out = builder.gated(out, out, CLAMPED)
        out_at, raw = self._memory.take(4 * 2 * _HEADS * _TOK)
        graph = builder.graph(builder.write_rows(table, states, rows), builder.placed(out, out_at))
        scratch.allocate(graph)
        compute.run(graph)
        found = values(raw, np.float32, _TOK, _HEADS, 2)
        expected = _expected(query_values, state_values, key_values, joint_values, sink_values)
        builder.close()
        return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    def _floats(self, *shape: int) -> tuple[Tensor, np.ndarray]:
        tensor, held = self._placed(F32, np.float32, *shape)
        held[...] = self._random.standard_normal(held.shape)
        return tensor, held

    def _placed(self, type_id: int, dtype: type[np.generic], *shape: int) -> tuple[Tensor, np.ndarray]:
        """A tensor, and its memory as an array of numpy's order; of a format in blocks, as bytes."""
        num_bytes = self._builder.row_bytes(type_id, shape[0]) * int(np.prod(shape[1:], dtype=np.int64))
        address, raw = self._memory.take(num_bytes)
        held = raw if dtype is np.uint8 else values(raw, dtype, *reversed(shape))
        return self._builder.new_at(address, type_id, *shape), held


def _expected(
    query: np.ndarray, states: np.ndarray, key_up: np.ndarray, joint: np.ndarray, sinks: np.ndarray
) -> np.ndarray:
    """float64 [tokens, heads, 2]"""
    frequencies = _ROPE.base ** (-np.arange(0, _ROTATED, 2) / _ROTATED) / np.array(_ROPE.divisors)
    angles = np.arange(5, 5 + _TOK)[:, None, None] * frequencies
    plain, turned = query[..., :_PLAIN].astype(np.float64), query[..., _PLAIN:].astype(np.float64)
    even, odd = turned[..., ::2], turned[..., 1::2]
    rotated = np.empty_like(turned)
    rotated[..., ::2] = even * np.cos(angles) - odd * np.sin(angles)
    rotated[..., 1::2] = odd * np.cos(angles) + even * np.sin(angles)
    absorbed = np.einsum("thp,hrp->thr", plain, key_up)
    asked = np.concatenate([absorbed, rotated * _ROPE.magnitude], axis=-1)
    scores = np.einsum("thd,cd->htc", asked, states) * _SCALE
    scores[:, ~np.tri(_TOK, dtype=bool)] = -np.inf
    highest = np.maximum(scores.max(axis=-1), sinks[:, None])[..., None]
    shares = np.exp(scores - highest)
    shares /= shares.sum(axis=-1, keepdims=True) + np.exp(sinks[:, None, None] - highest)
    mixed = np.einsum("htc,cr->thr", shares, states[:, :_RANK])
    out = np.einsum("thr,hvr->thv", mixed, joint.reshape(_HEADS, 3, _RANK)[:, 1:])
    gate, up = np.minimum(out, 7.0), np.clip(out, -7.0, 7.0)
    gated: np.ndarray = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    return gated
