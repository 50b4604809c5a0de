"""What the header of a safetensors file says of its tensors, checked. Light: no torch.

Source of the format: the safetensors README (8-byte little-endian header length, JSON header, data). A header is
untrusted input: lengths, offsets, shapes and overlaps are checked before anything is believed.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from engine.checkpoint.json_file import REFETCH, TENSOR_LIST
from engine.errors import CheckpointError, UnsupportedModelError
from offload.bounded_json import NotReadable, parse_object, shown
from offload.regular_file import open_regular, read_range, why

DTYPE_BYTES: Final = {
    "BF16": 2,
    "F16": 2,
    "F32": 4,
    "F64": 8,
    "I8": 1,
    "U8": 1,
    "I16": 2,
    "I32": 4,
    "I64": 8,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
}
"""Bytes of one value, by the format's names of types."""
_MAX_DIMENSIONS = 8


class TruncatedFile(CheckpointError):
    """A file ends before its last tensor does."""

    def __init__(self, message: str, missing_bytes: int) -> None:
        super().__init__(message, REFETCH)
        self.missing_bytes = missing_bytes


class StoredTensor(NamedTuple):
    """One tensor of a file. `file_offset` counts from the file's beginning."""

    key: str
    dtype: str
    """By the format's names, such as BF16."""
    shape: tuple[int, ...]
    file_offset: int
    num_bytes: int


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors of one file, in the header's order.

    Raises CheckpointError when the header is damaged or contradicts itself or the file, UnsupportedModelError for a
    type of values that is not known.
    """
    raw, data_start, file_bytes = _read_raw(path)
    raw.pop("__metadata__", None)
    tensors = [_tensor(path, key, value, data_start) for key, value in raw.items()]
    _check_places(path, tensors, data_start, file_bytes)
    return tensors


def read_texts(path: Path) -> dict[str, str]:
    """What the file's writer says of it in the header, `__metadata__`; empty where nothing is said. Raises
    CheckpointError."""
    texts = _read_raw(path)[0].get("__metadata__", {})
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
        raise _senseless(path, "__metadata__")
    return texts


def _read_raw(path: Path) -> tuple[dict[str, object], int, int]:
    """(JSON object, where the data begin, bytes of the file)."""
    try:
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            if size < 8:
                raise CheckpointError(f"{path} is too short for a safetensors file.", REFETCH)
            (length,) = struct.unpack("<Q", read_range(fd, 0, 8))
            if length > size - 8:
                raise CheckpointError(f"{path}: its header claims {length} bytes; the file has {size}.", REFETCH)
            if length > TENSOR_LIST.max_bytes:
                raise CheckpointError(
                    f"{path}: its header has {length} bytes, where at most {TENSOR_LIST.max_bytes} are read.", REFETCH
                )
            content = read_range(fd, 8, length)
        finally:
            os.close(fd)
        return parse_object(content, TENSOR_LIST), 8 + length, size
    except (EOFError, OSError) as error:
        reason = why(error) if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"{path}: {reason}.", REFETCH) from error
    except NotReadable as error:
        raise CheckpointError(f"{path}: its header cannot be read: {error}.", REFETCH) from error


def _tensor(path: Path, key: str, value: object, data_start: int) -> StoredTensor:
    if not isinstance(value, dict):
        raise _senseless(path, key)
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets)):
        raise _senseless(path, key)
    if len(shape) > _MAX_DIMENSIONS or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _senseless(path, key)
    if dtype not in DTYPE_BYTES:
        raise UnsupportedModelError(
            f"{path}: {shown(key)} is stored as {shown(dtype)}, which is not known.",
            "Use a bf16, fp16 or fp32 checkpoint.",
        )
    begin, end = offsets
    if math.prod(shape) * DTYPE_BYTES[dtype] != end - begin:
        raise CheckpointError(
            f"{path}: {shown(key)} of shape {shown(shape)} cannot be {shown(end - begin)} bytes of {dtype}.", REFETCH
        )
    return StoredTensor(key, dtype, tuple(shape), data_start + begin, end - begin)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def _senseless(path: Path, key: str) -> CheckpointError:
    return CheckpointError(f"{path}: the header's entry for {shown(key)} makes no sense.", REFETCH)


def _check_places(path: Path, tensors: list[StoredTensor], data_start: int, file_bytes: int) -> None:
    """Tensors follow each other without a gap from the header's end to the file's, as the format demands: a header of
    another length would shift every value."""
    filled = sorted((tensor for tensor in tensors if tensor.num_bytes), key=lambda tensor: tensor.file_offset)
    if not filled:
        return
    last = max(filled, key=lambda tensor: tensor.file_offset + tensor.num_bytes)
    missing_bytes = last.file_offset + last.num_bytes - file_bytes
    if missing_bytes > 0:
        where = f"{shown(last.key)} ends at byte {shown(last.file_offset + last.num_bytes)}"
        raise TruncatedFile(f"{path} is truncated: {where}, the file at {file_bytes}.", missing_bytes)
    end, before = data_start, ""
    for tensor in filled:
        if tensor.file_offset < end:
            raise CheckpointError(
                f"{path}: the header says that {shown(before)} and {shown(tensor.key)} overlap.", REFETCH
            )
        if tensor.file_offset > end:
            num_bytes = tensor.file_offset - end
            raise CheckpointError(f"{path}: {num_bytes} bytes before {shown(tensor.key)} belong to no tensor.", REFETCH)
        end, before = tensor.file_offset + tensor.num_bytes, tensor.key
    if end < file_bytes:
        raise CheckpointError(f"{path}: {file_bytes - end} bytes after {shown(before)} belong to no tensor.", REFETCH)
