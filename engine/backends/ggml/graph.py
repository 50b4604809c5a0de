"""Builds ggml graphs with every shape and type checked beforehand, since ggml aborts the process on a wrong one."""

from __future__ import annotations

from engine.backends.ggml.graph_attention import AttentionOperations
from engine.backends.ggml.graph_delta import DeltaOperations
from engine.backends.ggml.graph_tensors import ShapeError, Tensor, place, require, row_bytes
from engine.backends.ggml.model_spec import CLAMPED, GELU, SILU
from engine.backends.ggml.tensor_types import F32, I32

__all__ = ["GraphBuilder", "ShapeError", "Tensor", "place", "row_bytes"]

_ALPHA, _LIMIT = 1.702, 7.0
"""Of `CLAMPED`."""
_DESCENDING = 1
"""`GGML_SORT_ORDER_DESC`."""


class GraphBuilder(AttentionOperations, DeltaOperations):
    """A context that tensors and graphs are made in. It holds descriptions; values lie where tensors are placed."""

    # -- operations: each adds one node --------------------------------------------------------------------------------

    def product(self, weight: Tensor, rows: Tensor) -> Tensor:
        """weight [in, out], rows [in, n] -> float32 [out, n]."""
        require(len(weight.shape) == 2 == len(rows.shape), "a product takes two matrices", weight, rows)
        require(weight.shape[0] == rows.shape[0] and rows.type_id == F32, "a product", weight, rows)
        out = self._ggml.mul_mat(self._context, weight.pointer, rows.pointer)
        return Tensor(out, F32, (weight.shape[1], rows.shape[1]))

    def product_by_id(self, weights: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """One token through chosen matrices: weights [in, out, count], rows [in, 1 or k, 1], ids int32 [k, 1] ->
        float32 [out, k, 1]. The ids are not known here: whoever writes them checks them."""
        require(len(weights.shape) == 3 == len(rows.shape) and len(ids.shape) == 2, "a product by id", weights, rows)
        fits = (
            weights.shape[0] == rows.shape[0] and rows.shape[1] in (1, ids.shape[0]) and rows.shape[2] == ids.shape[1]
        )
        require(fits and rows.type_id == F32 and ids.type_id == I32, "a product by id", weights, rows, ids)
        out = self._ggml.mul_mat_id(self._context, weights.pointer, rows.pointer, ids.pointer)
        return Tensor(out, F32, (weights.shape[1], *ids.shape))

    def mul(self, values: Tensor, by: Tensor) -> Tensor:
        """`by` repeats over the rows of `values`, or is one value a row: [1, rows]."""
        self._require_broadcast(values, by)
        return values.made(self._ggml.mul(self._context, values.pointer, by.pointer))

    def add(self, values: Tensor, other: Tensor) -> Tensor:
        """`other` repeats over the rows of `values`."""
        self._require_broadcast(values, other)
        return values.made(self._ggml.add(self._context, values.pointer, other.pointer))

    def add_by_id(self, values: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Adds chosen rows: values float32 [n, k, tokens], rows float32 [n, count], ids int32 [k, tokens]. The ids are
        not known here: whoever writes them checks them."""
        fits = len(values.shape) == 3 and len(rows.shape) == 2 and values.shape == (rows.shape[0], *ids.shape)
        fits = fits and values.type_id == rows.type_id == F32 and ids.type_id == I32
        require(fits, "rows added by id", values, rows, ids)
        return values.made(self._ggml.add_id(self._context, values.pointer, rows.pointer, ids.pointer))

    def scaled(self, values: Tensor, factor: float, addend: float = 0.0) -> Tensor:
        """values times a number, plus another; a factor of 1 alone adds no node."""
        if (factor, addend) == (1.0, 0.0):
            return values
        require(values.type_id == F32, "a scale", values)
        if addend:
            return values.made(self._ggml.scale_bias(self._context, values.pointer, factor, addend))
        return values.made(self._ggml.scale(self._context, values.pointer, factor))

    def row_sums(self, rows: Tensor) -> Tensor:
        """rows [n, count] -> [1, count]."""
        require(len(rows.shape) == 2 and rows.type_id == F32, "sums of rows", rows)
        return Tensor(self._ggml.sum_rows(self._context, rows.pointer), F32, (1, rows.shape[1]))

    def divided(self, rows: Tensor, by: Tensor) -> Tensor:
        """Rows [n, count] by one value each: [1, count]."""
        fits = len(rows.shape) == 2 and by.shape == (1, rows.shape[1])
        require(fits and rows.type_id == by.type_id == F32, "a quotient", rows, by)
        return rows.made(self._ggml.div(self._context, rows.pointer, by.pointer))

    def weighted_sum(self, rows: Tensor, weights: Tensor) -> Tensor:
        """rows [n, k], weights [k, 1] -> [n, 1]: added in the order of the rows, each element by itself."""
        fits = len(rows.shape) == 2 and weights.shape == (rows.shape[1], 1)
        require(fits and rows.type_id == weights.type_id == F32, "a weighted sum", rows, weights)
        factors = self.reshape(weights, 1, rows.shape[1])
        return Tensor(self._ggml.out_prod(self._context, rows.pointer, factors.pointer), F32, (rows.shape[0], 1))

    def sigmoid(self, values: Tensor) -> Tensor:
        """1 / (1 + exp(-value))."""
        require(values.type_id == F32, "a sigmoid", values)
        return values.made(self._ggml.sigmoid(self._context, values.pointer))

    def softmax(self, values: Tensor) -> Tensor:
        """Of every row."""
        require(values.type_id == F32, "a softmax", values)
        return values.made(self._ggml.soft_max(self._context, values.pointer))

    def descending(self, values: Tensor) -> Tensor:
        """Of every row the places of its values, the largest first: int32, of the same shape. Of equal values either
        may be first."""
        require(values.type_id == F32, "an order", values)
        return Tensor(self._ggml.argsort(self._context, values.pointer, _DESCENDING), I32, values.shape)

    def rms_norm(self, rows: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Every row of `rows` [n, ...] over its root mean square, times `weight` float32 [n]."""
        require(rows.type_id == F32 and eps >= 0, "a norm", rows)
        return self.mul(rows.made(self._ggml.rms_norm(self._context, rows.pointer, eps)), weight)

    def read_rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """table [n, rows], ids int32 [count], or [count, 1] -> float32 [n, count]; of an int32 table int32. The ids are
        not known here."""
        require(len(table.shape) == 2 and ids.type_id == I32 and ids.shape[1:] in ((), (1,)), "rows read", table, ids)
        type_id = I32 if table.type_id == I32 else F32
        read = self._ggml.get_rows(self._context, table.pointer, ids.pointer)
        return Tensor(read, type_id, (table.shape[0], ids.shape[0]))

    def gated(self, gate: Tensor, up: Tensor, activation: str = SILU) -> Tensor:
        """activation(gate) * up, or what `CLAMPED` is."""
        require(gate.shape == up.shape and gate.type_id == up.type_id == F32, activation, gate, up)
        if activation == CLAMPED:
            return gate.made(self._ggml.swiglu_oai(self._context, gate.pointer, up.pointer, _ALPHA, _LIMIT))
        function = {SILU: self._ggml.swiglu_split, GELU: self._ggml.geglu_erf_split}[activation]
        return gate.made(function(self._context, gate.pointer, up.pointer))

    # -- graphs -------------------------------------------------------------------------------------------------------

    def graph(self, *outputs: Tensor) -> int:
        """A graph that computes `outputs` in this order, and whatever they need."""
        graph = self._ggml.new_graph_custom(self._context, self._graph_nodes, False)
        for output in outputs:
            self._ggml.build_forward_expand(graph, output.pointer)
        return int(graph)

    def placed(self, result: Tensor, address: int) -> Tensor:
        """Has an operation write its result to `address`, where it can be read after the graph."""
        place(self._ggml, result, address)
        return result

    def _require_broadcast(self, values: Tensor, other: Tensor) -> None:
        fits = other.shape in (values.shape, values.shape[:1], (1, *values.shape[1:]))
        require(fits and values.type_id == other.type_id == F32, "an elementwise operation", values, other)
