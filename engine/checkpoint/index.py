"""What lies where in a checkpoint folder: every tensor's file, byte range, dtype and shape, read from headers alone.

The safetensors header is untrusted input: lengths, offsets and overlaps are checked before anything is believed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.checkpoint.shards import REFETCH, list_shards, read_raw_header
from engine.errors import CheckpointError, UnsupportedModelError

DTYPES = {
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
        """The tensor, or rows `first .. first + count` of it, by `preadv` into fresh memory.

        Raises CheckpointError when the file ends early or cannot be read.
        """
        shape, offset, num_bytes = self.shape, self.file_offset, self.num_bytes
        if count is not None:
            row_bytes = num_bytes // shape[0]
            shape, offset, num_bytes = (count, *shape[1:]), offset + first * row_bytes, count * row_bytes
        target = torch.empty(num_bytes, dtype=torch.uint8)
        if num_bytes:
            _read_fully(self.path, offset, memoryview(target.numpy()))  # type: ignore[arg-type]  # see SlotPool
        return target.view(self.dtype).view(shape)


def _read_fully(path: str, offset: int, target: memoryview) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}.", REFETCH) from error
    try:
        done = 0
        while done < len(target):
            got = os.preadv(fd, [target[done:]], offset + done)
            if got == 0:
                raise CheckpointError(f"{path} ends at byte {offset + done}, in the middle of a tensor.", REFETCH)
            done += got
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}.", REFETCH) from error
    finally:
        os.close(fd)


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors shards of a folder, in order. Raises CheckpointError or UnsupportedModelError."""
    paths, missing = list_shards(folder)
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise CheckpointError(f"{len(missing)} of {len(paths)} shards are missing in {folder}: {shown}.", REFETCH)
    return list(paths)


def read_header(path: Path) -> list[TensorEntry]:
    """The tensors of one file, checked. Raises CheckpointError when the header lies."""
    header = read_raw_header(path)
    entries = [_entry(path, key, value, header.data_start, header.file_bytes) for key, value in header.entries.items()]
    _check_overlap(path, entries)
    return entries


def _entry(path: Path, key: str, value: object, base: int, size: int) -> TensorEntry:
    try:
        assert isinstance(value, dict)
        name, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
        is_sound = all(type(number) is int and number >= 0 for number in (*shape, begin, end)) and begin <= end
        is_sound &= isinstance(name, str)
    except (AssertionError, KeyError, TypeError, ValueError):
        is_sound = False
    if not is_sound:
        raise CheckpointError(f"{path}: the header's entry for {key!r} makes no sense.", REFETCH)
    if name not in DTYPES:
        raise UnsupportedModelError(
            f"{path}: {key!r} is stored as {name}, which is not known.", "Use a bf16, fp16 or fp32 checkpoint."
        )
    if base + end > size:
        raise CheckpointError(f"{path} is truncated: {key!r} ends at byte {base + end}, the file at {size}.", REFETCH)
    if math.prod(shape) * DTYPES[name].itemsize != end - begin:
        raise CheckpointError(
            f"{path}: {key!r} of shape {list(shape)} cannot be {end - begin} bytes of {name}.", REFETCH
        )
    return TensorEntry(key, str(path), base + begin, end - begin, DTYPES[name], shape)


def _check_overlap(path: Path, entries: list[TensorEntry]) -> None:
    end, last = 0, ""
    for entry in sorted(entries, key=lambda e: (e.file_offset, e.num_bytes)):
        if entry.num_bytes and entry.file_offset < end:
            raise CheckpointError(f"{path}: the header says that {last!r} and {entry.key!r} overlap.", REFETCH)
        if entry.num_bytes:
            end, last = entry.file_offset + entry.num_bytes, entry.key


def read_index(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the checkpoint, by key. Raises CheckpointError; a key in two shards is one."""
    entries: dict[str, TensorEntry] = {}
    for path in checkpoint_files(folder):
        for entry in read_header(path):
            if entry.key in entries:
                raise CheckpointError(
                    f"{entry.key!r} is stored twice, in {entries[entry.key].path} and {path}.", REFETCH
                )
            entries[entry.key] = entry
    if not entries:
        raise CheckpointError(f"{folder} holds no tensors.", REFETCH)
    return entries
