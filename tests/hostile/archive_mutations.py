"""Seeded damage to archives of arrays: packed, declared or described in another way than they should be."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
from random import Random

from tests.hostile.json_mutations import JSON_CHANGES, changed_json

ARCHIVE_CHANGES = (
    "deflated",
    "a bomb",
    "an object array",
    "a huge shape",
    "an array twice",
    "another header",
    "another type",
)


def changed_archive(content: bytes, how: str, random: Random) -> bytes:
    """The arrays of an npz, packed again in a way that is not plain."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice([name for name in members if name != "header.npy"])
    compression = zipfile.ZIP_STORED
    if how == "deflated":
        compression = zipfile.ZIP_DEFLATED
    elif how == "a bomb":
        members[name] = _array_header("|u1", (1 << 30,)) + bytes(512 << 20)
        compression = zipfile.ZIP_DEFLATED
    elif how == "an object array":
        members[name] = _array_header("|O", (3,)) + b"cposix\nsystem\n(S'true'\ntR."
    elif how == "a huge shape":
        shape = random.choice(((1 << 40,), (1 << 30, 1 << 30, 1 << 30), (-1,), (1 << 62, 0)))
        members[name] = _array_header(random.choice(("<u2", "<f8", "|u1", "<U1000000")), shape) + b"1234"
    elif how == "another type":
        members[name] = _as_another_type(members[name], random)
    elif how == "another header":
        members["header.npy"] = _changed_archive_header(members["header.npy"], random)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for member, array in members.items():
            archive.writestr(member, array)
        if how == "an array twice":
            _write_twice(archive, name, members[name])
    return packed.getvalue()


def _write_twice(archive: zipfile.ZipFile, name: str, array: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(name, array)


def _array_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _as_another_type(array: bytes, random: Random) -> bytes:
    """The same bytes as an array of other values, or of another shape."""
    content = array[array.index(b"\n") + 1 :]
    width = random.choice((1, 2, 4, 8))
    dtype = random.choice({1: ("|u1", "|b1"), 2: ("<u2", "<f2"), 4: ("<u4", ">u4", "<f4", "<i4"), 8: ("<f8",)}[width])
    count = len(content) // width
    shape = random.choice(((count,), (1, count), (count, 1, 1), (count, 1, 0), ()))
    return _array_header(dtype, shape) + content[: width * math.prod(shape)]


def _changed_archive_header(array: bytes, random: Random) -> bytes:
    text = array[array.index(b"\n") + 1 :]
    changed = changed_json(text, random.choice(JSON_CHANGES), random)
    return _array_header("|u1", (len(changed),)) + changed
