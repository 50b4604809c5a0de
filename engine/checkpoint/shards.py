"""A checkpoint's files, and the headers of safetensors files as they stand there. Light: no torch.

Source of the format: the safetensors README (8-byte little-endian header length, JSON header, data). A header is
untrusted input; what its entries say is for the reader of `read_raw_header` to check.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import NamedTuple

from engine.errors import CheckpointError, UnsupportedModelError

INDEX_FILE = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
REFETCH = "Fetch the file again, or restore it from where the model came from."
"""What to do about a damaged file."""


class Shards(NamedTuple):
    """The safetensors files of a checkpoint, in order, and the names of those that are not there."""

    paths: tuple[Path, ...]
    missing: tuple[str, ...]


def list_shards(folder: Path) -> Shards:
    """By the index where there is one. Raises CheckpointError for an index that makes no sense, UnsupportedModelError
    where there is no safetensors file at all."""
    index = folder / INDEX_FILE
    if index.exists():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            paths = tuple(folder / name for name in names)
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
            raise CheckpointError(f"{index} cannot be read: {error}.", REFETCH) from error
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in names):
            raise CheckpointError(f"{index} names a shard outside its folder.", REFETCH)
        return Shards(paths, tuple(path.name for path in paths if not path.exists()))
    paths = tuple(sorted(folder.glob("*.safetensors")))
    if not paths:
        raise UnsupportedModelError(
            f"{folder} holds no .safetensors file.",
            "Only safetensors checkpoints are read; others can run code when loaded.",
        )
    single = folder / "model.safetensors"
    return Shards((single,) if single in paths else paths, ())


class RawHeader(NamedTuple):
    """A header as it stands in the file: `entries` by tensor key, without the metadata."""

    entries: dict[str, object]
    data_start: int
    file_bytes: int


def read_raw_header(path: Path) -> RawHeader:
    """The header of one file. Raises CheckpointError when it is no JSON object of the length it claims."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"{path} is too short for a safetensors file.", REFETCH)
            (length,) = struct.unpack("<Q", prefix)
            if length > min(size - 8, MAX_HEADER_BYTES):
                raise CheckpointError(f"{path}: its header claims {length} bytes; the file has {size}.", REFETCH)
            header = json.loads(file.read(length), object_pairs_hook=_without_repeats)
        if not isinstance(header, dict):
            raise ValueError("not a JSON object")
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}.", REFETCH) from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its header is not valid JSON ({error}).", REFETCH) from error
    header.pop("__metadata__", None)
    return RawHeader(header, 8 + length, size)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; the format forbids a key twice, where JSON would let the last one win."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return values
