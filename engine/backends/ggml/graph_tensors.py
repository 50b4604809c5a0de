"""Tensors as Python knows them, and the context they are made in. ggml aborts the process on a wrong shape or type, so
both are checked before every call.

A `Tensor` is a pointer with what Python knows of it. Tensors of a builder live as long as the builder's context.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from engine.backends.ggml.library import Ggml, InitParams
from engine.backends.ggml.tensor_types import F32

_ADDRESS_SPACE = 1 << 47


class Tensor(NamedTuple):
    """A ggml tensor: `shape` in ggml's order, the row length first."""

    pointer: int
    type_id: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    """Of a view, bytes from one row to the next, and from one matrix to the next; empty: values follow each other."""

    @property
    def num_values(self) -> int:
        """Values it holds."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    def made(self, pointer: int) -> Tensor:
        """The result of an operation, of the same type and shape; its values follow each other."""
        return Tensor(pointer, self.type_id, self.shape)


class ShapeError(ValueError):
    """Tensors that ggml cannot combine: a mistake in a graph or a weight of another shape than its family's."""


class TensorBuilder:
    """A context that tensors are made in. It holds descriptions; values lie where tensors are placed."""

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
        return Tensor(view, type_id, (*shape, count), (row_bytes, stride_bytes))

    def strided_rows(self, address: int, length: int, count: int, stride_bytes: int) -> Tensor:
        """`count` rows of `length` float32 values, the first at `address` and each `stride_bytes` behind the last."""
        if count < 1 or (count > 1 and stride_bytes < 4 * length) or stride_bytes % 4:
            raise ShapeError(f"rows of {4 * length} bytes at a stride of {stride_bytes}")
        whole = self.new_at(address, F32, stride_bytes // 4 * (count - 1) + length)
        view = self._ggml.view_2d(self._context, whole.pointer, length, count, stride_bytes, 0)
        return Tensor(view, F32, (length, count), (stride_bytes,))

    def row_bytes(self, type_id: int, length: int) -> int:
        """Bytes of `length` values. Raises ShapeError where they are no whole blocks."""
        return row_bytes(self._ggml, type_id, length)

    def contiguous(self, tensor: Tensor) -> Tensor:
        """A copy whose values follow each other: one node."""
        return tensor.made(self._ggml.cont(self._context, tensor.pointer))

    def reshape(self, tensor: Tensor, *shape: int) -> Tensor:
        """The same values, two or three dimensions. They must follow each other."""
        reshaped = Tensor(0, tensor.type_id, shape)
        fits = reshaped.num_values == tensor.num_values and len(shape) in (2, 3) and not tensor.strides
        require(fits, f"a reshape to {shape}", tensor)
        change = self._ggml.reshape_2d if len(shape) == 2 else self._ggml.reshape_3d
        return reshaped._replace(pointer=change(self._context, tensor.pointer, *shape))

    def strides_of(self, tensor: Tensor) -> tuple[int, ...]:
        """Bytes from one row to the next, and, of three dimensions, from one matrix to the next."""
        if tensor.strides:
            return tensor.strides
        row = self.row_bytes(tensor.type_id, tensor.shape[0])
        return (row,) if len(tensor.shape) == 2 else (row, row * tensor.shape[1])

    def view(self, tensor: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset_bytes: int) -> Tensor:
        """Values of a tensor as another one, of two or three dimensions. It must end within the tensor."""
        ends = [self.row_bytes(tensor.type_id, shape[0])]
        ends += [stride * (count - 1) for stride, count in zip(strides, shape[1:], strict=True)]
        own = self.row_bytes(tensor.type_id, tensor.shape[0])
        own += sum(s * (n - 1) for s, n in zip(self.strides_of(tensor), tensor.shape[1:], strict=True))
        fits = len(shape) in (2, 3) and min(shape) > 0 and offset_bytes >= 0 and offset_bytes + sum(ends) <= own
        require(fits, f"a view of {shape} at {offset_bytes}", tensor)
        make = self._ggml.view_2d if len(shape) == 2 else self._ggml.view_3d
        pointer = make(self._context, tensor.pointer, *shape, *strides, offset_bytes)
        return Tensor(pointer, tensor.type_id, shape, strides)


def row_bytes(ggml: Ggml, type_id: int, length: int) -> int:
    """Bytes of `length` values. Raises ShapeError where they are no whole blocks."""
    block = int(ggml.blck_size(type_id))
    if block < 1 or length % block:
        raise ShapeError(f"{length} values of type {type_id} are no whole blocks of {block}")
    return length // block * int(ggml.type_size(type_id))


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


def require(is_right: bool, what: str, *tensors: Tensor) -> None:
    """Raises ShapeError, saying what was asked for and what the tensors are."""
    if not is_right:
        raise ShapeError(f"{what}: " + ", ".join(f"{each.shape} of type {each.type_id}" for each in tensors))
