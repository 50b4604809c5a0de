"""A GGUF model's header: its metadata, and what lies where in its file or files. Checked: a header is untrusted.

Source of the format: the GGUF specification (ggml's `docs/gguf.md`).
"""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from engine.checkpoint.gguf.split_files import part_paths, split_name
from engine.checkpoint.gguf.types import TYPES, type_name
from engine.checkpoint.gguf.values import MAX_KEY_BYTES, HeaderReader, Value
from engine.checkpoint.json_file import REFETCH
from engine.errors import CheckpointError, UnsupportedModelError
from offload.bounded_json import shown
from offload.regular_file import open_regular, why

_MAX_KEYS: Final = 65_536
_MAX_TENSORS: Final = 262_144
_MAX_NAME_BYTES: Final = 255
_MAX_DIMENSIONS = 4
_MAX_VALUES = 1 << 48
_KEY_BYTES, _TENSOR_BYTES = 13, 33
"""The fewest bytes that a key with its value, and a tensor's entry, take."""
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 21
_MAX_ARCHITECTURE_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One stored tensor. `shape` is in ggml's order: the length of a row first. `file_offset` is absolute in `path`."""

    name: str
    type_id: int
    type_name: str
    """Such as Q4_K."""
    shape: tuple[int, ...]
    path: Path
    file_offset: int
    num_bytes: int
    """0 where the type is not known."""

    @property
    def is_known(self) -> bool:
        """Whether its type is one of `types.TYPES`."""
        return self.type_id in TYPES


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A model in one file, or in the parts of a split one."""

    path: Path
    """As it was named."""
    paths: tuple[Path, ...]
    """All parts, in order."""
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]
    architecture: str


class _Part(NamedTuple):
    """One file of a model."""

    metadata: dict[str, Value]
    tensors: list[GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """The model that `path` is, or is a part of.

    Raises CheckpointError, naming file and key, for what is damaged, cut off or missing; UnsupportedModelError for a
    version or byte order that is not read.
    """
    paths = part_paths(path)
    parts = [_read_part(part) for part in paths]
    metadata, tensors = parts[0].metadata, dict[str, GgufTensor]()
    for number, (part_path, part) in enumerate(zip(paths, parts, strict=True)):
        _check_split(part_path, part.metadata, number, len(paths))
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise _damaged(part_path, f"{shown(tensor.name)} is stored in {tensors[tensor.name].path} as well")
            tensors[tensor.name] = tensor
    total = metadata.get("split.tensors.count")
    if len(paths) > 1 and total is not None and total != len(tensors):
        raise _damaged(paths[0], f"split.tensors.count is {shown(total)}, and the parts hold {len(tensors)} tensors")
    return GgufFile(path, paths, metadata, tensors, _architecture(paths[0], metadata))


def _read_part(path: Path) -> _Part:
    try:
        fd = open_regular(path)
        try:
            reader = HeaderReader(path, fd)
            num_tensors, num_keys = _read_counts(reader)
            metadata = _read_metadata(reader, num_keys)
            alignment = _alignment(reader, metadata)
            infos = [_read_info(reader) for _ in range(num_tensors)]
        finally:
            os.close(fd)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}.", REFETCH) from error
    data_start = reader.position + -reader.position % alignment
    tensors = [_tensor(reader, info, data_start, alignment) for info in infos]
    _check_places(reader, tensors)
    return _Part(metadata, tensors)


# -- the header's pieces -----------------------------------------------------------------------------------------------


def _read_counts(reader: HeaderReader) -> tuple[int, int]:
    """(tensors, keys): magic number, version and counts are behind the reader then."""
    magic = reader.take(4) if reader.file_bytes >= 4 else b""
    if magic != b"GGUF":
        raise _no_gguf(reader, magic)
    version = int(reader.number(4))
    if version and version & 0xFFFF == 0:
        raise UnsupportedModelError(
            f"{reader.path} is a big-endian GGUF file, which is not read.",
            "Use the model's ordinary (little-endian) GGUF file.",
        )
    if version not in (2, 3):
        raise UnsupportedModelError(
            f"{reader.path} is a GGUF file of version {version}, where 2 and 3 are read.",
            "Use a newer file of the model." if version < 2 else "A newer release of moe-chat may read it.",
        )
    num_tensors, num_keys = reader.count(), reader.count()
    left = reader.file_bytes - reader.position
    for count, most, smallest, what in (
        (num_keys, _MAX_KEYS, _KEY_BYTES, "keys"),
        (num_tensors, _MAX_TENSORS, _TENSOR_BYTES, "tensors"),
    ):
        if count > most:
            raise reader.damaged(f"its header claims {count} {what}, where at most {most} are read")
        if count * smallest > left:
            raise reader.damaged(f"its header claims {count} {what}, more than a file of {reader.file_bytes} bytes has")
    return num_tensors, num_keys


def _no_gguf(reader: HeaderReader, magic: bytes) -> CheckpointError:
    if magic == b"vers":
        return CheckpointError(
            f"{reader.path} is not the model: it is a Git LFS pointer to it, of {reader.file_bytes} bytes.",
            "Fetch the file itself (git lfs pull, or download it from the model's page).",
        )
    begin = f"it begins with {magic!r}" if magic else f"it has {reader.file_bytes} bytes"
    return reader.damaged(f"it is no GGUF file: {begin}")


def _read_metadata(reader: HeaderReader, num_keys: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(num_keys):
        key = reader.text("the name of a key", MAX_KEY_BYTES)
        if not key or not key.isprintable():
            raise reader.damaged(f"{shown(key)} is no name of a key")
        if key in metadata:
            raise reader.damaged(f"the key {shown(key)} is there twice")
        metadata[key] = reader.value(key)
    return metadata


def _alignment(reader: HeaderReader, metadata: dict[str, Value]) -> int:
    """What the data's beginning and all offsets are a multiple of."""
    found = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(found) is not int or not 1 <= found <= _MAX_ALIGNMENT or found & (found - 1):
        raise reader.damaged(
            f"general.alignment is {shown(found)}, where a power of two of at most {_MAX_ALIGNMENT} belongs"
        )
    return found


class _Info(NamedTuple):
    """A tensor's entry. `offset` counts from where the data begin."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def _read_info(reader: HeaderReader) -> _Info:
    name = reader.text("the name of a tensor", _MAX_NAME_BYTES)
    if not name or not name.isprintable():
        raise reader.damaged(f"{shown(name)} is no name of a tensor")
    num_dimensions = int(reader.number(4))
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise reader.damaged(
            f"{shown(name)} has {num_dimensions} dimensions, where 1 to {_MAX_DIMENSIONS} were expected"
        )
    shape = tuple(reader.count() for _ in range(num_dimensions))
    return _Info(name, shape, int(reader.number(4)), reader.count())


def _tensor(reader: HeaderReader, info: _Info, data_start: int, alignment: int) -> GgufTensor:
    num_values = math.prod(info.shape)
    if min(info.shape) < 1 or num_values > _MAX_VALUES:
        raise reader.damaged(f"{shown(info.name)} has the shape {list(info.shape)}, which makes no sense")
    if info.offset % alignment:
        raise reader.damaged(
            f"{shown(info.name)} begins at byte {info.offset} of the data, which is no multiple of {alignment}"
        )
    known = TYPES.get(info.type_id)
    if known and info.shape[0] % known.block_values:
        raise reader.damaged(
            f"{shown(info.name)} has rows of {info.shape[0]} values, and {known.name} stores whole blocks of "
            f"{known.block_values}"
        )
    num_bytes = num_values // known.block_values * known.block_bytes if known else 0
    offset, name = data_start + info.offset, type_name(info.type_id)
    return GgufTensor(info.name, info.type_id, name, info.shape, reader.path, offset, num_bytes)


def _check_places(reader: HeaderReader, tensors: list[GgufTensor]) -> None:
    """Every name once, no two tensors over each other, and all of them inside the file."""
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise reader.damaged(f"the tensor {shown(tensor.name)} is there twice")
        names.add(tensor.name)
    if not tensors:
        return
    ordered = sorted(tensors, key=lambda tensor: tensor.file_offset)
    for before, tensor in itertools.pairwise(ordered):
        if before.file_offset + before.num_bytes > tensor.file_offset:
            raise reader.damaged(f"the header says that {shown(before.name)} and {shown(tensor.name)} overlap")
    end = ordered[-1].file_offset + ordered[-1].num_bytes
    if end > reader.file_bytes:
        raise CheckpointError(f"{reader.path} is cut off: {reader.file_bytes} of {shown(end)} bytes.", REFETCH)


# -- several files -----------------------------------------------------------------------------------------------------


def _check_split(path: Path, metadata: dict[str, Value], number: int, num_parts: int) -> None:
    """`number` counts from 0, as the files do."""
    count, own = metadata.get("split.count", 1), metadata.get("split.no", 0)
    if (count, own) == (num_parts, number):
        return
    if split_name(path) is None and type(count) is int and type(own) is int and count > 1:
        raise CheckpointError(
            f"{path} is part {own + 1} of a model of {count} parts, and its name does not say so.",
            f"Give the parts their names back: NAME-{own + 1:05}-of-{count:05}.gguf, all in one folder.",
        )
    raise _damaged(
        path,
        f"by its name it is part {number + 1} of {num_parts}; split.no is {shown(own)} (from 0 on) and split.count "
        f"{shown(count)}",
    )


def _architecture(path: Path, metadata: dict[str, Value]) -> str:
    found = metadata.get("general.architecture")
    if not isinstance(found, str) or not 0 < len(found) <= _MAX_ARCHITECTURE_CHARACTERS or not found.isprintable():
        raise _damaged(path, f"general.architecture is {shown(found)}, where the name of an architecture belongs")
    return found


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path}: {problem}.", REFETCH)
