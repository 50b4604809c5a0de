"""Looks for NaN and infinite values in a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.header import StoredTensor
from engine.checkpoint.stored_tensors import stored_tensors

_PIECE_BYTES = 16 << 20
_EXPONENTS: Final[dict[str, tuple[type[np.unsignedinteger], int]]] = {
    "F64": (np.uint64, 0x7FF0_0000_0000_0000),
    "F32": (np.uint32, 0x7F80_0000),
    "F16": (np.uint16, 0x7C00),
    "BF16": (np.uint16, 0x7F80),
    "F8_E5M2": (np.uint8, 0x7C),
    "F8_E4M3": (np.uint8, 0x7F),
    "F8_E8M0": (np.uint8, 0xFF),
}
"""Per floating-point format, the bits that are all set in values that are not finite, and in no others."""


def tensors_not_finite(folder: Path, on_tensor: Callable[[int, int], None]) -> list[str]:
    """Reads every stored tensor; returns the keys of those that hold NaN or infinite values. `on_tensor(done, total)`
    is called before each and may raise to end it. Raises CheckpointError."""
    damaged: list[str] = []
    placed = list(stored_tensors(folder).values())
    for number, (path, tensor) in enumerate(placed):
        on_tensor(number, len(placed))
        if tensor.dtype in _EXPONENTS and not _is_finite(path, tensor):
            damaged.append(tensor.key)
    return damaged


def _is_finite(path: Path, tensor: StoredTensor) -> bool:
    kind, exponent = _EXPONENTS[tensor.dtype]
    for start in range(0, tensor.num_bytes, _PIECE_BYTES):
        raw = np.empty(min(_PIECE_BYTES, tensor.num_bytes - start), dtype=np.uint8)
        read_file(path, tensor.file_offset + start, memoryview(raw))  # type: ignore[arg-type]  # numpy's stubs: 3.12 on
        bits = raw.view(kind)
        if ((bits & kind(exponent)) == exponent).any():
            return False
    return True
