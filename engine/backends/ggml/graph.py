"""Builds ggml graphs with every shape and type checked beforehand, since ggml aborts the process on a wrong one.

A `Tensor` is a pointer with what Python knows of it. Tensors of a builder live as long as the builder's context.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from engine.backends.ggml.library import Ggml, InitParams
from engine.backends.ggml.model_spec import GELU, HALVES, NEIGHBOURS, SILU
from engine.backends.ggml.tensor_types import F16, F32, I32, I64

_ADDRESS_SPACE = 1 << 47


class Tensor(NamedTuple):
    """A ggml tensor: `shape` in ggml's order, the row length first."""

    pointer: int
    type_id: int
    shape: tuple[int, ...]

    @property
    def num_values(self) -> int:
        """Values it holds."""
        count = 1
        for length in self.shape:
            count *= length
        return count


class ShapeError(ValueError):
    """Tensors that ggml cannot combine: a mistake in a graph or a weight of another shape than its family's."""


class GraphBuilder:
    """A context that tensors and graphs are made in. It holds descriptions; values lie where tensors are placed."""

    def __init__(self, ggml: Ggml, num_tensors: int, num_graphs: int = 1, graph_nodes: int = 64) -> None:
        """Room for so many tensors, and graphs of so many nodes."""
        self._ggml, self._graph_nodes = ggml, graph_nodes
        size = num_tensors * (int(ggml.tensor_overhead()) + 16)
        size += num_graphs * (int(ggml.graph_overhead_custom(graph_nodes, False)) + 64)
        self._context = ggml.init(InitParams(size, ctypes.c_void_p(), True))
        if not self._context:
            raise MemoryError("ggml could not allocate a context")

    def close(self) -> None:
        """Frees descriptions; every Tensor and graph of this builder is invalid then. Safe to call twice."""
        if self._context:
            self._ggml.free(self._context)
            self._context = None

    # -- tensors ------------------------------------------------------------------------------------------------------

    def new(self, type_id: int, *shape: int) -> Tensor:
        """A tensor without memory, of one to three dimensions."""
        block = int(self._ggml.blck_size(type_id))
        if not 1 <= len(shape) <= 3 or min(shape) < 1 or block < 1 or shape[0] % block:
            raise ShapeError(f"no tensor of type {type_id} has the shape {shape}")
        create = (self._ggml.new_tensor_1d, self._ggml.new_tensor_2d, self._ggml.new_tensor_3d)[len(shape) - 1]
        return Tensor(create(self._context, type_id, *shape), type_id, shape)

    def new_at(self, address: int, type_id: int, *shape: int) -> Tensor:
        """A tensor of the values at `address`, which must stay there as long as graphs use it."""
        tensor = self.new(type_id, *shape)
        place(self._ggml, tensor, address)
        return tensor

    def strided(self, address: int, type_id: int, shape: tuple[int, int], count: int, stride_bytes: int) -> Tensor:
        """`count` matrices of `shape`, the first at `address` and each `stride_bytes` behind the last."""
        block, row_bytes = int(self._ggml.blck_size(type_id)), self.row_bytes(type_id, shape[0])
        if count < 1 or (count > 1 and stride_bytes < row_bytes * shape[1]):
            raise ShapeError(f"matrices of {row_bytes * shape[1]} bytes overlap at a stride of {stride_bytes}")
        num_bytes = stride_bytes * (count - 1) + row_bytes * shape[1]
        whole = self.new_at(address, type_id, -(-num_bytes // int(self._ggml.type_size(type_id))) * block)
        view = self._ggml.view_3d(self._context, whole.pointer, *shape, count, row_bytes, stride_bytes, 0)
        return Tensor(view, type_id, (*shape, count))

    def strided_rows(self, address: int, length: int, count: int, stride_bytes: int) -> Tensor:
        """`count` rows of `length` float32 values, the first at `address` and each `stride_bytes` behind the last."""
        if count < 1 or (count > 1 and stride_bytes < 4 * length) or stride_bytes % 4:
            raise ShapeError(f"rows of {4 * length} bytes at a stride of {stride_bytes}")
        whole = self.new_at(address, F32, stride_bytes // 4 * (count - 1) + length)
        view = self._ggml.view_2d(self._context, whole.pointer, length, count, stride_bytes, 0)
        return Tensor(view, F32, (length, count))

    def row_bytes(self, type_id: int, length: int) -> int:
        """Bytes of `length` values. Raises ShapeError where they are no whole blocks."""
        block = int(self._ggml.blck_size(type_id))
        if block < 1 or length % block:
            raise ShapeError(f"{length} values of type {type_id} are no whole blocks of {block}")
        return length // block * int(self._ggml.type_size(type_id))

    # -- operations: each adds one node --------------------------------------------------------------------------------

    def product(self, weight: Tensor, rows: Tensor) -> Tensor:
        """weight [in, out], rows [in, n] -> float32 [out, n]."""
        _require(len(weight.shape) == 2 == len(rows.shape), "a product takes two matrices", weight, rows)
        _require(weight.shape[0] == rows.shape[0] and rows.type_id == F32, "a product", weight, rows)
        out = self._ggml.mul_mat(self._context, weight.pointer, rows.pointer)
        return Tensor(out, F32, (weight.shape[1], rows.shape[1]))

    def product_by_id(self, weights: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """One token through chosen matrices: weights [in, out, count], rows [in, 1 or k, 1], ids int32 [k, 1] ->
        float32 [out, k, 1]. The ids are not known here: whoever writes them checks them."""
        _require(len(weights.shape) == 3 == len(rows.shape) and len(ids.shape) == 2, "a product by id", weights, rows)
        fits = (
            weights.shape[0] == rows.shape[0] and rows.shape[1] in (1, ids.shape[0]) and rows.shape[2] == ids.shape[1]
        )
        _require(fits and rows.type_id == F32 and ids.type_id == I32, "a product by id", weights, rows, ids)
        out = self._ggml.mul_mat_id(self._context, weights.pointer, rows.pointer, ids.pointer)
        return Tensor(out, F32, (weights.shape[1], *ids.shape))

    def mul(self, values: Tensor, by: Tensor) -> Tensor:
        """`by` repeats over the rows of `values`, or is one value a row: [1, rows]."""
        self._require_broadcast(values, by)
        return values._replace(pointer=self._ggml.mul(self._context, values.pointer, by.pointer))

    def add(self, values: Tensor, other: Tensor) -> Tensor:
        """`other` repeats over the rows of `values`."""
        self._require_broadcast(values, other)
        return values._replace(pointer=self._ggml.add(self._context, values.pointer, other.pointer))

    def add_by_id(self, values: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
        """Adds chosen rows: values float32 [n, k, tokens], rows float32 [n, count], ids int32 [k, tokens]. The ids are
        not known here: whoever writes them checks them."""
        fits = len(values.shape) == 3 and len(rows.shape) == 2 and values.shape == (rows.shape[0], *ids.shape)
        fits = fits and values.type_id == rows.type_id == F32 and ids.type_id == I32
        _require(fits, "rows added by id", values, rows, ids)
        return values._replace(pointer=self._ggml.add_id(self._context, values.pointer, rows.pointer, ids.pointer))

    def scaled(self, values: Tensor, factor: float) -> Tensor:
        """values times a number; a factor of 1 adds no node."""
        if factor == 1.0:
            return values
        _require(values.type_id == F32, "a scale", values)
        return values._replace(pointer=self._ggml.scale(self._context, values.pointer, factor))

    def sigmoid(self, values: Tensor) -> Tensor:
        """1 / (1 + exp(-value))."""
        _require(values.type_id == F32, "a sigmoid", values)
        return values._replace(pointer=self._ggml.sigmoid(self._context, values.pointer))

    def rms_norm(self, rows: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Every row of `rows` [n, ...] over its root mean square, times `weight` float32 [n]."""
        _require(rows.type_id == F32 and eps >= 0, "a norm", rows)
        return self.mul(rows._replace(pointer=self._ggml.rms_norm(self._context, rows.pointer, eps)), weight)

    def rope(
        self, heads: Tensor, positions: Tensor, num_dims: int, base: float, context_tok: int, pairs: int = HALVES
    ) -> Tensor:
        """Rotary embedding on the first `num_dims` of heads [dim, heads, tokens], positions int32 [tokens]."""
        fits = len(heads.shape) == 3 and num_dims % 2 == 0 and 0 < num_dims <= heads.shape[0]
        fits = fits and positions.type_id == I32 and positions.shape == (heads.shape[2],)
        fits = fits and pairs in (HALVES, NEIGHBOURS)
        _require(fits and heads.type_id == F32 and base > 0, "a rotary embedding", heads, positions)
        out = self._ggml.rope_ext(
            *(self._context, heads.pointer, positions.pointer, None, num_dims, pairs, context_tok),
            *(base, 1.0, 0.0, 1.0, 32.0, 1.0),
        )
        return heads._replace(pointer=out)

    def write_rows(self, target: Tensor, rows: Tensor, at: Tensor) -> Tensor:
        """Writes rows [n, count] into rows `at` (int64 [count]) of target [n, capacity]; returns the target."""
        fits = len(target.shape) == 2 == len(rows.shape) and target.shape[0] == rows.shape[0]
        fits = fits and at.type_id == I64 and at.shape == (rows.shape[1],) and rows.type_id == F32
        _require(fits, "rows written", target, rows, at)
        return target._replace(pointer=self._ggml.set_rows(self._context, target.pointer, rows.pointer, at.pointer))

    def read_rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """table [n, rows], ids int32 [count] -> float32 [n, count]. The ids are not known here."""
        _require(len(table.shape) == 2 and ids.type_id == I32 and len(ids.shape) == 1, "rows read", table, ids)
        return Tensor(self._ggml.get_rows(self._context, table.pointer, ids.pointer), F32, (table.shape[0], *ids.shape))

    def attention(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
        """query float32 [dim, heads, tokens], keys and values [dim, kv heads, cached], mask float16 [cached, tokens] ->
        float32 [dim, heads, tokens]."""
        fits = len(query.shape) == 3 == len(keys.shape) and keys.shape == values.shape
        fits = fits and query.shape[0] == keys.shape[0] and query.shape[1] % keys.shape[1] == 0
        fits = fits and mask.shape == (keys.shape[2], query.shape[2]) and mask.type_id == F16 and query.type_id == F32
        _require(fits, "attention", query, keys, values, mask)
        by_head = [self._ggml.permute(self._context, each.pointer, 0, 2, 1, 3) for each in (query, keys, values)]
        out = self._ggml.flash_attn_ext(self._context, *by_head, mask.pointer, scale, 0.0, 0.0)
        return query._replace(pointer=out)

    def gated(self, gate: Tensor, up: Tensor, activation: str = SILU) -> Tensor:
        """activation(gate) * up."""
        _require(gate.shape == up.shape and gate.type_id == up.type_id == F32, activation, gate, up)
        function = {SILU: self._ggml.swiglu_split, GELU: self._ggml.geglu_erf_split}[activation]
        return gate._replace(pointer=function(self._context, gate.pointer, up.pointer))

    def reshape(self, tensor: Tensor, *shape: int) -> Tensor:
        """The same values, two or three dimensions."""
        reshaped = Tensor(0, tensor.type_id, shape)
        _require(reshaped.num_values == tensor.num_values and len(shape) in (2, 3), f"a reshape to {shape}", tensor)
        change = self._ggml.reshape_2d if len(shape) == 2 else self._ggml.reshape_3d
        return reshaped._replace(pointer=change(self._context, tensor.pointer, *shape))

    def first_rows(self, table: Tensor, num_heads: int, count: int) -> Tensor:
        """The first `count` rows of table [heads * dim, capacity] as [dim, heads, count]: a view."""
        width, capacity = table.shape
        _require(width % num_heads == 0 and 0 < count <= capacity, f"{count} rows", table)
        dim = width // num_heads
        strides = self.row_bytes(table.type_id, dim), self.row_bytes(table.type_id, width)
        view = self._ggml.view_3d(self._context, table.pointer, dim, num_heads, count, *strides, 0)
        return Tensor(view, table.type_id, (dim, num_heads, count))

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
        _require(fits and values.type_id == other.type_id == F32, "an elementwise operation", values, other)


def place(ggml: Ggml, tensor: Tensor, address: int) -> None:
    """Gives a tensor the memory at `address`."""
    if address <= 0 or address >= _ADDRESS_SPACE:
        raise ShapeError(f"no memory is at address {address}")
    if ggml.backend_tensor_alloc(_whole_memory(ggml), tensor.pointer, address) != 0:
        raise MemoryError("ggml refused the memory of a tensor")


_buffers: dict[int, Any] = {}


def _whole_memory(ggml: Ggml) -> Any:
    """A buffer that spans the address space: ggml compares addresses with its bounds and does nothing else to it."""
    key = id(ggml)
    if key not in _buffers:
        _buffers[key] = ggml.backend_cpu_buffer_from_ptr(4096, _ADDRESS_SPACE - 4096)
    return _buffers[key]


def _require(is_right: bool, what: str, *tensors: Tensor) -> None:
    if not is_right:
        raise ShapeError(f"{what}: " + ", ".join(f"{each.shape} of type {each.type_id}" for each in tensors))
