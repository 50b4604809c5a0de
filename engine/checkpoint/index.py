"""What lies where in a checkpoint folder: every tensor's file, byte range, dtype and shape, read from headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.header import StoredTensor
from engine.checkpoint.header import read_header as read_stored
from engine.checkpoint.stored_tensors import stored_tensors
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


def read_header(path: Path) -> list[TensorEntry]:
    """The tensors of one file, checked. Raises CheckpointError and UnsupportedModelError, see `header.read_header`."""
    return [_entry(path, tensor) for tensor in read_stored(path)]


def _entry(path: Path, tensor: StoredTensor) -> TensorEntry:
    return TensorEntry(tensor.key, str(path), tensor.file_offset, tensor.num_bytes, DTYPES[tensor.dtype], tensor.shape)


def read_index(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the checkpoint, by key. Raises as `stored_tensors` does."""
    return {key: _entry(placed.path, placed.tensor) for key, placed in stored_tensors(folder).items()}
