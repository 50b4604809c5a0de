"""What identifies a model: the names, shapes and types of its tensors, and samples of its bytes.

A profile or a trace is bound to it: routing learnt from one model says nothing about another.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.location import is_gguf

_NUM_SAMPLES = 32
_SAMPLE_BYTES = 4096


class _Stored(NamedTuple):
    """A tensor: its name, type and shape as they are digested, and where its bytes lie."""

    described: tuple[str, str, tuple[int, ...]]
    path: str
    file_offset: int
    num_bytes: int


def fingerprint(model: Path) -> str:
    """A hex digest of 32 characters, of a checkpoint folder or a GGUF file; reads headers and some hundred kilobytes.
    Raises CheckpointError."""
    entries = _of_gguf(model) if is_gguf(model) else _of_folder(model)
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(json.dumps(entry.described).encode())
    for entry in entries[:: max(len(entries) // _NUM_SAMPLES, 1)]:
        digest.update(_sample(entry))
    return digest.hexdigest()[:32]


def _of_gguf(path: Path) -> list[_Stored]:
    tensors = sorted(read_gguf(path).tensors.items())
    return [
        _Stored((name, found.type_name, found.shape), str(found.path), found.file_offset, found.num_bytes)
        for name, found in tensors
    ]


def _of_folder(folder: Path) -> list[_Stored]:
    from engine.checkpoint.index import read_index

    return [
        _Stored((key, str(entry.dtype), entry.shape), entry.path, entry.file_offset, entry.num_bytes)
        for key, entry in sorted(read_index(folder).items())
    ]


def _sample(entry: _Stored) -> bytes:
    """Bytes from the middle of a tensor: beginnings are often alike. Raises CheckpointError."""
    count = min(_SAMPLE_BYTES, entry.num_bytes)
    sample = bytearray(count)
    if count:
        read_file(entry.path, entry.file_offset + (entry.num_bytes - count) // 2, memoryview(sample))
    return bytes(sample)
