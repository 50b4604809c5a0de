"""Seeded damage to GGUF files: fields of the header, its bytes, and what lies in the file's place."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

_SIZES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _LIST = 8, 9
_LARGE: Final = (0, 1, 2, 3, 5, 13, 33, 77, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1)
HOW: Final = (
    "a count", "a length", "a type", "a number", "a dimension", "a tensor's type", "an offset", "several fields",
    "flipped bytes", "flipped bytes", "cut short", "bytes inserted", "bytes removed", "a name twice", "no UTF-8",
    "another number of tokens", "something else there", "a sparse list",
)  # fmt: skip
"""In the order of the cases' numbers."""


class Field(NamedTuple):
    """A number in a header: which kind, where, and how many bytes."""

    kind: str
    at: int
    size: int


def fields(content: bytes) -> tuple[list[Field], int]:
    """(every number of a sound header, where the header ends)."""
    found = [Field("a count", 8, 8), Field("a count", 16, 8)]
    num_tensors, num_keys = struct.unpack_from("<QQ", content, 8)
    at = 24
    for _ in range(num_keys):
        at = _skip_text(content, at, found)
        found.append(Field("a type", at, 4))
        (kind,) = struct.unpack_from("<I", content, at)
        at = _skip_value(content, at + 4, kind, found)
    for _ in range(num_tensors):
        at = _skip_text(content, at, found)
        found.append(Field("a count", at, 4))
        (num_dimensions,) = struct.unpack_from("<I", content, at)
        at += 4
        found += [Field("a dimension", at + 8 * number, 8) for number in range(num_dimensions)]
        at += 8 * num_dimensions
        found += [Field("a tensor's type", at, 4), Field("an offset", at + 4, 8)]
        at += 12
    return found, at


def _skip_text(content: bytes, at: int, found: list[Field]) -> int:
    found.append(Field("a length", at, 8))
    return int(at + 8 + struct.unpack_from("<Q", content, at)[0])


def _skip_value(content: bytes, at: int, kind: int, found: list[Field]) -> int:
    if kind == _TEXT:
        return _skip_text(content, at, found)
    if kind != _LIST:
        found.append(Field("a number", at, _SIZES[kind]))
        return at + _SIZES[kind]
    found += [Field("a type", at, 4), Field("a count", at + 4, 8)]
    inner, count = struct.unpack_from("<IQ", content, at)
    at += 12
    if inner != _TEXT:
        return at + int(count) * _SIZES[inner]
    for number in range(count):
        ignored: list[Field] = []
        at = _skip_text(content, at, found if number % 50 == 0 else ignored)
    return at


def damage(path: Path, number: int) -> str:
    """Damages the file of a model, by the case's number alone, and returns what was done."""
    how, random = HOW[number % len(HOW)], Random(number)
    content = bytearray(path.read_bytes())
    found, end = fields(content)
    if how == "something else there":
        return _put_instead(path, random)
    if how == "a sparse list":
        return _write_sparse(path, random)
    if how == "flipped bytes":
        for _ in range(random.choice((1, 2, 5, 40))):
            content[random.randrange(end)] ^= 1 << random.randrange(8)
    elif how == "cut short":
        del content[random.choice((random.randrange(end), random.randrange(len(content)), len(content) - 1)) :]
    elif how == "bytes inserted":
        content[(at := random.randrange(end)) : at] = random.randbytes(random.choice((1, 8, 32, 1000)))
    elif how == "bytes removed":
        del content[(at := random.randrange(end)) : at + random.choice((1, 8, 32, 1000))]
    elif how == "a name twice":
        _copy_name(content, found, random)
    elif how == "no UTF-8":
        at = random.choice([field.at for field in found if field.kind == "a length"]) + 8
        content[at : at + 1] = b"\xff"
    elif how == "another number of tokens":
        at = content.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
        struct.pack_into(
            "<Q", content, at, max(struct.unpack_from("<Q", content, at)[0] + random.choice((-3, 1, 9)), 0)
        )
    else:
        for _ in range(random.choice((2, 5)) if how == "several fields" else 1):
            chosen = [field for field in found if field.kind == how] or found
            _change(content, random.choice(chosen), random)
    path.write_bytes(content)
    return how


def _change(content: bytearray, field: Field, random: Random) -> None:
    old = int.from_bytes(content[field.at : field.at + field.size], "little")
    near = (old + 1, max(old - 1, 0), old * 2, random.randrange(1 << 8 * field.size))
    new = random.choice((*_LARGE, *near)) % (1 << 8 * field.size)
    content[field.at : field.at + field.size] = new.to_bytes(field.size, "little")


def _copy_name(content: bytearray, found: list[Field], random: Random) -> None:
    """Gives one text the content of another of the same length."""
    texts: dict[int, list[int]] = {}
    for field in found:
        if field.kind == "a length":
            texts.setdefault(struct.unpack_from("<Q", content, field.at)[0], []).append(field.at + 8)
    size, places = random.choice([(size, places) for size, places in texts.items() if size and len(places) > 1])
    source, target = random.sample(places, 2)
    content[target : target + size] = content[source : source + size]


def _put_instead(path: Path, random: Random) -> str:
    path.unlink()
    name, make = random.choice(list(_INSTEAD.items()))
    make(path)
    return name


_INSTEAD: Final[dict[str, Callable[[Path], None]]] = {
    "a FIFO": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "an empty file": lambda path: path.touch(),
    "nothing": lambda path: None,
    "a safetensors file": lambda path: path.write_bytes(struct.pack("<Q", 2) + b"{}") and None,
    "a huge empty file": lambda path: _sparse(path, b"", 1 << 34),
}


def _write_sparse(path: Path, random: Random) -> str:
    """A small file that claims, and has, gigabytes of zeros: as many empty strings, or numbers, as are allowed."""
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, 40)
    for name, text in (("general.architecture", "qwen3moe"), ("tokenizer.ggml.model", "gpt2")):
        header += _text(name) + struct.pack("<I", _TEXT) + _text(text)
    kind = random.choice((_TEXT, 0, 5, 10))
    count = random.choice((1 << 20, 4 << 20, 1 << 30))
    key = random.choice(("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"))
    header += _text(key) + struct.pack("<IIQ", _LIST, kind, count)
    _sparse(path, header, 1 << 34)
    return "a sparse list"


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _sparse(path: Path, header: bytes, num_bytes: int) -> None:
    path.write_bytes(header)
    os.truncate(path, num_bytes)
