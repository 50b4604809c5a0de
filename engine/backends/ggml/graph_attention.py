"""The operations of attention. Each adds one node or more, with shapes and types checked beforehand."""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.attention_spec import RopeSpec
from engine.backends.ggml.graph_tensors import Tensor, TensorBuilder, require
from engine.backends.ggml.tensor_types import F16, F32, I32, I64

_HALVES: Final = 2
_INTERLEAVED: Final = 0
"""ggml's numbers for the pairs that are rotated: i with i + n / 2, or 2i with 2i + 1."""
_ANY_LENGTH: Final = 4096
"""The original context, which ggml uses where it computes YaRN's ramp itself."""


class AttentionOperations(TensorBuilder):
    """Rotary embeddings, rows of a KV cache, and attention over them."""

    def rope(self, heads: Tensor, positions: Tensor, rope: RopeSpec, divisors: Tensor | None = None) -> Tensor:
        """Rotary embedding on the first values of heads [dim, heads, tokens], positions int32 [tokens]. `divisors`:
        float32, those of `rope` in memory."""
        fits = len(heads.shape) == 3 and rope.num_dims % 2 == 0 and 0 < rope.num_dims <= heads.shape[0]
        fits = fits and positions.type_id == I32 and positions.shape == (heads.shape[2],)
        fits = fits and (None if divisors is None else divisors.shape) == (
            (rope.num_dims // 2,) if rope.divisors else None
        )
        require(fits and heads.type_id == F32 and rope.base > 0, "a rotary embedding", heads, positions)
        out = self._ggml.rope_ext(
            *(self._context, heads.pointer, positions.pointer, None if divisors is None else divisors.pointer),
            *(rope.num_dims, _INTERLEAVED if rope.is_interleaved else _HALVES, _ANY_LENGTH),
            *(rope.base, 1.0, 0.0, rope.magnitude, 32.0, 1.0),
        )
        return heads.made(out)

    def write_rows(self, target: Tensor, rows: Tensor, at: Tensor) -> Tensor:
        """Writes rows [n, count] into rows `at` (int64 [count]) of target [n, capacity]; returns the target."""
        fits = len(target.shape) == 2 == len(rows.shape) and target.shape[0] == rows.shape[0]
        fits = fits and at.type_id == I64 and at.shape == (rows.shape[1],) and rows.type_id == F32
        require(fits, "rows written", target, rows, at)
        return target._replace(pointer=self._ggml.set_rows(self._context, target.pointer, rows.pointer, at.pointer))

    def rows_of(self, table: Tensor, num_heads: int, first: int, count: int) -> Tensor:
        """Rows `first` to `first + count` of table [heads * dim, capacity] as [dim, heads, count]: a view."""
        width = table.shape[0]
        require(width % num_heads == 0 and first >= 0, f"{count} rows at {first}", table)
        dim = width // num_heads
        strides = self.row_bytes(table.type_id, dim), self.row_bytes(table.type_id, width)
        return self.view(table, (dim, num_heads, count), strides, first * strides[1])

    def columns(self, tensor: Tensor, first: int, count: int) -> Tensor:
        """Values `first` to `first + count` of every row: a view."""
        require(first >= 0 and 0 < count <= tensor.shape[0] - first, f"{count} columns at {first}", tensor)
        shape, offset_bytes = (count, *tensor.shape[1:]), self.row_bytes(tensor.type_id, first)
        return self.view(tensor, shape, self.strides_of(tensor), offset_bytes)

    def with_one_head(self, rows: Tensor) -> Tensor:
        """Rows [dim, tokens] as [dim, 1, tokens]: a view."""
        stride = self.strides_of(rows)[0]
        return self.view(rows, (rows.shape[0], 1, rows.shape[1]), (stride, stride), 0)

    def last_rows_by_head(self, joint: Tensor, num_heads: int, count: int) -> Tensor:
        """joint [in, heads * rows] -> [in, count, heads]: the last `count` rows of every head, a view."""
        num_rows = joint.shape[1] // num_heads
        require(joint.shape[1] % num_heads == 0 and 0 < count <= num_rows, f"{count} rows of each head", joint)
        row = self.strides_of(joint)[0]
        return self.view(joint, (joint.shape[0], count, num_heads), (row, row * num_rows), (num_rows - count) * row)

    def product_by_head(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Each head through a matrix of its own: weights [in, out, heads], rows float32 [in, heads, tokens] ->
        float32 [out, heads, tokens], a view."""
        fits = len(weights.shape) == 3 == len(rows.shape) and rows.type_id == F32
        fits = fits and (weights.shape[0], weights.shape[2]) == rows.shape[:2]
        require(fits, "a product by head", weights, rows)
        by_head = self._ggml.permute(self._context, rows.pointer, 0, 2, 1, 3)
        out = self._ggml.mul_mat(self._context, weights.pointer, by_head)
        num_out, num_tok = weights.shape[1], rows.shape[2]
        strides = 4 * num_out * num_tok, 4 * num_out
        turned = self._ggml.permute(self._context, out, 0, 2, 1, 3)
        return Tensor(turned, F32, (num_out, *rows.shape[1:]), strides)

    def concat(self, first: Tensor, second: Tensor) -> Tensor:
        """Rows of the one, each followed by the row of the other: one node."""
        fits = first.shape[1:] == second.shape[1:] and first.type_id == second.type_id == F32
        require(fits, "rows joined", first, second)
        out = self._ggml.concat(self._context, first.pointer, second.pointer, 0)
        return Tensor(out, F32, (first.shape[0] + second.shape[0], *first.shape[1:]))

    def attention(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """query float32 [dim, heads, tokens], keys [dim, kv heads, rows], values [value dim, kv heads, rows], mask
        float16 [rows, tokens], sinks float32 [heads] -> float32 [value dim, heads, tokens]."""
        fits = len(query.shape) == 3 == len(keys.shape) and keys.shape[1:] == values.shape[1:]
        fits = fits and query.shape[0] == keys.shape[0] and query.shape[1] % keys.shape[1] == 0
        fits = fits and mask.shape == (keys.shape[2], query.shape[2]) and mask.type_id == F16 and query.type_id == F32
        fits = fits and (sinks is None or (sinks.shape == query.shape[1:2] and sinks.type_id == F32))
        require(fits, "attention", query, keys, values, mask)
        by_head = [self._ggml.permute(self._context, each.pointer, 0, 2, 1, 3) for each in (query, keys, values)]
        out = self._ggml.flash_attn_ext(self._context, *by_head, mask.pointer, scale, 0.0, 0.0)
        if sinks is not None:
            self._ggml.flash_attn_ext_add_sinks(out, sinks.pointer)
        return Tensor(out, F32, (values.shape[0], *query.shape[1:]))
