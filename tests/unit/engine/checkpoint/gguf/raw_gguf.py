"""Writes GGUF headers byte by byte, wrong ones included, as no writer would."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

U8, U16, I32, U32, F32, BOOL, TEXT, LIST, U64 = 0, 2, 5, 4, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def number(name: str, value: int) -> bytes:
    return key(name, U32, struct.pack("<I", value))


def listed(name: str, kind: int, count: int, content: bytes) -> bytes:
    return key(name, LIST, struct.pack("<IQ", kind, count) + content)


class Info(NamedTuple):
    name: str | bytes = "a.weight"
    shape: Sequence[int] = (32, 2)
    kind: int = 0
    offset: int = 0

    def packed(self) -> bytes:
        shape = struct.pack(f"<I{len(self.shape)}Q", len(self.shape), *self.shape)
        return text(self.name) + shape + struct.pack("<IQ", self.kind, self.offset)


ARCHITECTURE = key("general.architecture", TEXT, text("qwen3moe"))


def write(
    path: Path,
    keys: Sequence[bytes] = (ARCHITECTURE,),
    infos: Sequence[Info] = (),
    *,
    data_bytes: int = 0,
    magic: bytes = b"GGUF",
    version: bytes = struct.pack("<I", 3),
    num_tensors: int | None = None,
    num_keys: int | None = None,
    alignment: int = 32,
) -> Path:
    """A file of this header and `data_bytes` of zeros."""
    counts = (len(infos) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    header = magic + version + struct.pack("<QQ", *counts) + b"".join(keys)
    header += b"".join(info.packed() for info in infos)
    path.write_bytes(header + bytes(-len(header) % alignment + data_bytes))
    return path
