"""The resident weights in memory: read once into one block, in the format they are stored in.

Norms, biases and routers are made float32: ggml multiplies by float32 rows, and a router's choice should not depend on
the rounding of its input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.made_weights import read_parts, write_made
from engine.backends.ggml.memory import Memory
from engine.backends.ggml.model_spec import ModelSpec, StoredWeight
from engine.backends.ggml.plain_values import to_float32
from engine.backends.ggml.tensor_types import BF16, F16, F32
from engine.backends.ggml.transposed_keys import write_transposed
from engine.checkpoint.file_bytes import read_file
from engine.errors import CheckpointError

_ALIGNMENT = 64
_PIECE_BYTES = 8 << 20


class ResidentWeights:
    """Addresses of the resident tensors by name, and the formats they have in memory."""

    def __init__(self, spec: ModelSpec) -> None:
        """Plans; `load` reads."""
        self._as_float32 = held_as_float32(spec)
        made = [keys.held for keys in spec.transposed().values()]
        sizes = [self._held_bytes(each) for each in (*spec.resident().values(), *made)]
        self.num_bytes = sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
        self._addresses: dict[str, int] = {}
        self._spec = spec

    def load(self, on_read: Callable[[int], None]) -> None:
        """Allocates and reads everything; `on_read(bytes)` is called for every piece and may raise to end it. Raises
        CheckpointError, MemoryError."""
        memory = self._memory = Memory(self.num_bytes)
        for weight in self._spec.resident().values():
            address, target = memory.take(self._held_bytes(weight), _ALIGNMENT)
            self._addresses[weight.name] = address
            if weight.name in self._as_float32:
                raw = np.empty(weight.num_bytes, dtype=np.uint8)
                _read(weight, raw, on_read)
                target.view(np.float32)[:] = to_float32(raw, weight.type_id)
                _require_finite(weight, target.view(np.float32))
            else:
                _read(weight, target, on_read)

    def transpose(self, ggml: Ggml, compute: Compute, scratch: Scratch) -> None:
        """Makes the transposed matrices, once everything is read. Raises MemoryError."""
        for keys in self._spec.transposed().values():
            self._addresses[keys.held.name], held = self._memory.take(keys.held.num_bytes, _ALIGNMENT)
            write_transposed(ggml, compute, scratch, keys, self._addresses[keys.joint.name], held)

    def address(self, weight: StoredWeight) -> int:
        """Where a resident tensor is, once loaded."""
        return self._addresses[weight.name]

    def float32(self, weight: StoredWeight) -> np.ndarray:
        """The values of a resident tensor that is held as float32."""
        start = self._addresses[weight.name] - self._memory.address
        return self._memory.bytes[start : start + 4 * _num_values(weight)].view(np.float32)

    def type_of(self, weight: StoredWeight) -> int:
        """ggml's number of the format that it has in memory."""
        return F32 if weight.name in self._as_float32 else weight.type_id

    def _held_bytes(self, weight: StoredWeight) -> int:
        return 4 * _num_values(weight) if weight.name in self._as_float32 else weight.num_bytes


def held_as_float32(spec: ModelSpec) -> frozenset[str]:
    """Names of the tensors that are held as float32, whatever they are stored as."""
    small = (weight for layer in spec.layers for weight in layer.vectors() if weight.type_id in (F32, F16, BF16))
    return frozenset({*(weight.name for weight in small), spec.output_norm.name})


def _num_values(weight: StoredWeight) -> int:
    return int(np.prod(weight.shape))


def _read(weight: StoredWeight, target: np.ndarray, on_read: Callable[[int], None]) -> None:
    if weight.made is not None:
        write_made(weight, read_parts(weight.made), target)
        on_read(weight.num_bytes)
        return
    whole = memoryview(target)  # type: ignore[arg-type]  # numpy's stubs know buffers from Python 3.12 on
    for start in range(0, weight.num_bytes, _PIECE_BYTES):
        piece = whole[start : start + _PIECE_BYTES]
        read_file(weight.path, weight.file_offset + start, piece)
        on_read(len(piece))


def _require_finite(weight: StoredWeight, held: np.ndarray) -> None:
    if not np.isfinite(held).all():
        raise CheckpointError(
            f"{weight.name} holds NaN or infinite values.", "The checkpoint is damaged; fetch it again."
        )
