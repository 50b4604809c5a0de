"""What lies where in a checkpoint folder: every tensor's file, byte range, dtype and shape, read from headers alone.

The safetensors header is untrusted input: lengths, offsets and overlaps are checked before anything is believed.
Source of the format: the safetensors README (8-byte little-endian header length, JSON header, data).
"""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import torch

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
INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
_REFETCH = "Fetch the file again, or restore it from where the model came from."


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
        raise CheckpointError(f"{path}: {error.strerror}.", _REFETCH) from error
    try:
        done = 0
        while done < len(target):
            got = os.preadv(fd, [target[done:]], offset + done)
            if got == 0:
                raise CheckpointError(f"{path} ends at byte {offset + done}, in the middle of a tensor.", _REFETCH)
            done += got
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}.", _REFETCH) from error
    finally:
        os.close(fd)


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors shards of a folder, in order. Raises CheckpointError or UnsupportedModelError."""
    index = folder / INDEX_FILE
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            paths = [folder / name for name in names]
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
            raise CheckpointError(f"{index} cannot be read: {error}.", _REFETCH) from error
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
            raise CheckpointError(f"{index} names a shard outside its folder.", _REFETCH)
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            raise CheckpointError(f"{len(missing)} of {len(paths)} shards are missing in {folder}: {shown}.", _REFETCH)
        return paths
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise UnsupportedModelError(
            f"{folder} holds no .safetensors file.",
            "Only safetensors checkpoints are read; others can run code when loaded.",
        )
    single = folder / "model.safetensors"
    return [single] if single in paths else paths


def read_header(path: Path) -> list[TensorEntry]:
    """The tensors of one file, checked. Raises CheckpointError when the header lies."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"{path} is too short for a safetensors file.", _REFETCH)
            (length,) = struct.unpack("<Q", prefix)
            if length > min(size - 8, MAX_HEADER_BYTES):
                raise CheckpointError(f"{path}: its header claims {length} bytes; the file has {size}.", _REFETCH)
            header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
        if not isinstance(header, dict):
            raise ValueError("not a JSON object")
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}.", _REFETCH) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its header is not valid JSON ({error}).", _REFETCH) from error
    header.pop("__metadata__", None)
    entries = [_entry(path, key, value, 8 + length, size) for key, value in header.items()]
    _check_overlap(path, entries)
    return entries


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; the format forbids a key twice, where JSON would let the last one win."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return values


def _entry(path: Path, key: str, value: object, base: int, size: int) -> TensorEntry:
    try:
        assert isinstance(value, dict)
        name, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
        is_sound = all(type(number) is int and number >= 0 for number in (*shape, begin, end)) and begin <= end
        is_sound &= isinstance(name, str)
    except (AssertionError, KeyError, TypeError, ValueError):
        is_sound = False
    if not is_sound:
        raise CheckpointError(f"{path}: the header's entry for {key!r} makes no sense.", _REFETCH)
    if name not in DTYPES:
        raise UnsupportedModelError(
            f"{path}: {key!r} is stored as {name}, which is not known.", "Use a bf16, fp16 or fp32 checkpoint."
        )
    if base + end > size:
        raise CheckpointError(f"{path} is truncated: {key!r} ends at byte {base + end}, the file at {size}.", _REFETCH)
    if math.prod(shape) * DTYPES[name].itemsize != end - begin:
        raise CheckpointError(
            f"{path}: {key!r} of shape {list(shape)} cannot be {end - begin} bytes of {name}.", _REFETCH
        )
    return TensorEntry(key, str(path), base + begin, end - begin, DTYPES[name], shape)


def _check_overlap(path: Path, entries: list[TensorEntry]) -> None:
    end, last = 0, ""
    for entry in sorted(entries, key=lambda e: (e.file_offset, e.num_bytes)):
        if entry.num_bytes and entry.file_offset < end:
            raise CheckpointError(f"{path}: the header says that {last!r} and {entry.key!r} overlap.", _REFETCH)
        if entry.num_bytes:
            end, last = entry.file_offset + entry.num_bytes, entry.key


def read_index(folder: Path) -> dict[str, TensorEntry]:
    """Every tensor of the checkpoint, by key. Raises CheckpointError; a key in two shards is one."""
    entries: dict[str, TensorEntry] = {}
    for path in checkpoint_files(folder):
        for entry in read_header(path):
            if entry.key in entries:
                raise CheckpointError(
                    f"{entry.key!r} is stored twice, in {entries[entry.key].path} and {path}.", _REFETCH
                )
            entries[entry.key] = entry
    if not entries:
        raise CheckpointError(f"{folder} holds no tensors.", _REFETCH)
    return entries
