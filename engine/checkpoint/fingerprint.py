"""What identifies a model to its profiles, traces and tuned weights: its routers.

They say which experts the routers choose. So they hold for every file of a model whose routers have the same shapes and
values, whatever format its experts are stored in and whichever back end runs it: bf16 safetensors, and GGUF files whose
routers are F32, F16 or BF16 and were not rounded. A router in another format has values of its own, and is another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.gguf.header import GgufFile, read_gguf
from engine.checkpoint.gguf.location import is_gguf
from engine.checkpoint.routers import StoredRouter, routers_of_folder, routers_of_gguf
from engine.checkpoint.stored_tensors import Placed, stored_tensors

_NUM_SAMPLES = 32
_SAMPLE_BYTES = 4096
_CHARACTERS = 32
_TORCH_NAMES: Final = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "U8": "uint8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


class Fingerprint(str):
    """A hex digest of 32 characters, of a model's routers; of all its tensors where no router is found."""

    earlier: str
    """The digest of all tensors, which profiles of earlier versions were bound to: they are still read."""

    def __new__(cls, routers: str, earlier: str | None = None) -> Fingerprint:
        """`earlier`: None where it is the same."""
        self = super().__new__(cls, routers)
        self.earlier = routers if earlier is None else earlier
        return self


def is_bound_to(model: str, fingerprint: str) -> bool:
    """Whether what is bound to `model` may be used for a model of this fingerprint."""
    return model in bound_to(fingerprint)


def bound_to(fingerprint: str) -> tuple[str, ...]:
    """What may be named by a file that is used for a model of this fingerprint: the fingerprint, and an earlier one."""
    earlier = fingerprint.earlier if isinstance(fingerprint, Fingerprint) else fingerprint
    return tuple(dict.fromkeys((str(fingerprint), str(earlier))))


def fingerprint(model: Path) -> Fingerprint:
    """Of a checkpoint folder or a GGUF file; reads headers and some hundred kilobytes. Raises CheckpointError."""
    if is_gguf(model):
        file = read_gguf(model)
        routers, entries = routers_of_gguf(file), _of_gguf(file)
    else:
        tensors = stored_tensors(model)
        routers, entries = routers_of_folder(model, tensors), _of_folder(tensors)
    earlier = _digest_of_tensors(entries)
    return Fingerprint(_digest_of_routers(routers) if routers else earlier, earlier)


def _digest_of_routers(routers: Iterable[StoredRouter]) -> str:
    digest = hashlib.sha256(b"routers")
    for router in routers:
        digest.update(json.dumps([router.layer, router.part, router.shape]).encode())
        digest.update(router.sample())
    return digest.hexdigest()[:_CHARACTERS]


class _Stored(NamedTuple):
    """A tensor: its name, type and shape as they are digested, and where its bytes lie."""

    described: tuple[str, str, tuple[int, ...]]
    path: str
    file_offset: int
    num_bytes: int


def _digest_of_tensors(entries: list[_Stored]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(json.dumps(entry.described).encode())
    for entry in entries[:: max(len(entries) // _NUM_SAMPLES, 1)]:
        digest.update(_middle_of(entry))
    return digest.hexdigest()[:_CHARACTERS]


def _of_gguf(file: GgufFile) -> list[_Stored]:
    return [
        _Stored((name, found.type_name, found.shape), str(found.path), found.file_offset, found.num_bytes)
        for name, found in sorted(file.tensors.items())
    ]


def _of_folder(tensors: Mapping[str, Placed]) -> list[_Stored]:
    return [
        _Stored(
            (key, f"torch.{_TORCH_NAMES[tensor.dtype]}", tensor.shape), str(path), tensor.file_offset, tensor.num_bytes
        )
        for key, (path, tensor) in sorted(tensors.items())
    ]


def _middle_of(entry: _Stored) -> bytes:
    """Bytes from the middle of a tensor: beginnings are often alike. Raises CheckpointError."""
    count = min(_SAMPLE_BYTES, entry.num_bytes)
    sample = bytearray(count)
    if count:
        read_file(entry.path, entry.file_offset + (entry.num_bytes - count) // 2, memoryview(sample))
    return bytes(sample)
