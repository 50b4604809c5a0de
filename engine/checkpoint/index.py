"""What lies where in a checkpoint folder: every tensor's file, byte range, dtype and shape, read from headers alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.header import StoredTensor
from engine.checkpoint.header import read_header as read_stored
from engine.checkpoint.json_file import REFETCH
from engine.checkpoint.shards import choose_shards
from engine.errors import CheckpointError
from offload.bounded_json import shown
from offload.page_memory import advise_huge_pages

DTYPES: Final = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I8": torch.int8,
    "U8": torch.uint8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
}
"""By the format's names; the same as in `header.DTYPE_BYTES`."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One stored tensor. `file_offset` is absolute in `path`."""

    key: str
    path: str
    file_offset: int
    num_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def read(self, first: int = 0, count: int | None = None) -> torch.Tensor:
        """The tensor, or rows `first .. first + count` of it, read into fresh memory.

        Raises CheckpointError when the file ends early or cannot be read.
        """
        shape, offset, num_bytes = self.shape, self.file_offset, self.num_bytes
        if count is not None:
            row_bytes = num_bytes // shape[0]
            shape, offset, num_bytes = (count, *shape[1:]), offset + first * row_bytes, count * row_bytes
        target = torch.empty(num_bytes, dtype=torch.uint8)
        if num_bytes:
            advise_huge_pages(target.data_ptr(), num_bytes)
            read_file(self.path, offset, memoryview(target.numpy()))  # type: ignore[arg-type]  # see SlotPool
        return target.view(self.dtype).view(shape)


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors shards of a folder, in order. Raises CheckpointError or UnsupportedModelError."""
    paths, missing, _ = choose_shards(folder)
    if missing:
        listed = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise CheckpointError(f"{len(missing)} of {len(paths)} shards are missing in {folder}: {listed}.", REFETCH)
    return list(paths)


def read_header(path: Path) -> list[TensorEntry]:
    """The tensors of one file, checked. Raises CheckpointError and UnsupportedModelError, see `header.read_header`."""
    return [_entry(path, tensor) for tensor in read_stored(path)]


def _entry(path: Path, tensor: StoredTensor) -> TensorEntry:
    return TensorEntry(tensor.key, str(path), tensor.file_offset, tensor.num_bytes, DTYPES[tensor.dtype], tensor.shape)


def read_index(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the checkpoint, by key. Raises CheckpointError; a key in two shards is one."""
    entries: dict[str, TensorEntry] = {}
    paths = checkpoint_files(folder)
    for path in paths:
        for entry in read_header(path):
            if entry.key in entries:
                raise CheckpointError(
                    f"{shown(entry.key)} is stored twice, in {entries[entry.key].path} and {path}.", REFETCH
                )
            entries[entry.key] = entry
    if not entries:
        raise CheckpointError(f"{paths[0]} holds no tensors.", REFETCH)
    return entries


def tensors_not_finite(folder: Path, on_tensor: Callable[[int, int], None]) -> list[str]:
    """Reads every stored tensor; returns the keys of those that hold NaN or infinite values. `on_tensor(done, total)`
    is called before each and may raise to end it. Raises CheckpointError."""
    damaged: list[str] = []
    entries = list(read_index(folder).values())
    for number, entry in enumerate(entries):
        on_tensor(number, len(entries))
        if entry.dtype.is_floating_point and not torch.isfinite(entry.read()).all():
            damaged.append(entry.key)
    return damaged
