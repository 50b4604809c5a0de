"""Every tensor of a checkpoint folder, as the headers of its files have it. Light: no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.header import StoredTensor, read_header
from engine.checkpoint.json_file import REFETCH
from engine.checkpoint.shards import choose_shards
from engine.errors import CheckpointError
from offload.bounded_json import shown

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


class Placed(NamedTuple):
    """A tensor and its file."""

    path: Path
    tensor: StoredTensor


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors shards of a folder, in order. Raises CheckpointError or UnsupportedModelError."""
    paths, missing, _ = choose_shards(folder)
    if missing:
        listed = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise CheckpointError(f"{len(missing)} of {len(paths)} shards are missing in {folder}: {listed}.", REFETCH)
    return list(paths)


def stored_tensors(folder: Path) -> dict[str, Placed]:
    """Every tensor, by key. Raises CheckpointError, for a key in two shards too; UnsupportedModelError."""
    found: dict[str, Placed] = {}
    paths = checkpoint_files(folder)
    for path in paths:
        for tensor in read_header(path):
            if tensor.key in found:
                raise CheckpointError(
                    f"{shown(tensor.key)} is stored twice, in {found[tensor.key].path} and {path}.", REFETCH
                )
            found[tensor.key] = Placed(path, tensor)
    if not found:
        raise CheckpointError(f"{paths[0]} holds no tensors.", REFETCH)
    return found


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
