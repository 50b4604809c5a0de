"""Archives that are not what they declare are refused before they are unpacked."""

from __future__ import annotations

import resource
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from offload.archive import geometry_from_json, geometry_to_json, read_archive, write_archive
from offload.errors import TraceError

FORMAT = "moe-chat test"


def read(path: Path) -> dict[str, np.ndarray]:
    return read_archive(path, FORMAT, 1, TraceError, "Make it again.").arrays


def sound(path: Path) -> dict[str, bytes]:
    """The members of a sound archive."""
    write_archive(path, FORMAT, 1, {}, {"a": np.arange(6, dtype=np.uint16).reshape(3, 2), "e": np.zeros((0, 3))})
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def array(dtype: str, shape: str, content: bytes = b"", is_fortran: bool = False) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': {is_fortran}, 'shape': {shape}}}\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content


def test_what_was_written_is_read(tmp_path: Path) -> None:
    sound(tmp_path / "it.npz")
    arrays = read(tmp_path / "it.npz")
    np.testing.assert_array_equal(arrays["a"], np.arange(6).reshape(3, 2))
    assert arrays["a"].dtype == np.uint16
    assert arrays["e"].shape == (0, 3)


def test_compressed_arrays_are_refused_without_unpacking_them(tmp_path: Path) -> None:
    path = tmp_path / "it.npz"
    members = sound(path) | {"a.npy": array("|u1", f"({1 << 26},)", bytes(1 << 26))}
    pack(path, members, zipfile.ZIP_DEFLATED)
    members.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TraceError, match=r"it\.npz is damaged.* in it is compressed"):
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (array("|u1", f"({1 << 40},)", b"1234"), "declares 1099511627776 bytes and has"),
        (array("<f8", f"({1 << 40}, {1 << 40}, {1 << 40})", b"1234"), "declares"),
        (array("<U100000000", "(1,)", b"1234"), "declares"),
        (array("|u1", "(-4,)", b"1234"), ""),
        (array("|u1", f"({1 << 62}, 0)"), "no plain array"),
        (array("|u1", "(3,)", b"1234"), "declares 3 bytes and has 4"),
        (array("|u1", "(9,)", b"1234"), "declares 9 bytes and has 4"),
        (array("|O", "(1,)", b"cposix\nsystem\n(S'true'\ntR."), "no plain array"),
        (array("[('a', '<u2')]".replace("'", '"'), "(2,)", b"1234"), ""),
        (array("|u1", "(2, 2)", b"1234", is_fortran=True), "no plain array"),
        (array("|u1", "(__import__('os').getcwd(),)"), ""),
        (b"\x93NUMPY\x03\x00" + bytes(20), "array format"),
        (b"", ""),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_an_array_that_is_not_what_it_declares(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "it.npz"
    pack(path, sound(path) | {"a.npy": content})
    with pytest.raises(TraceError, match=rf"it\.npz is damaged, or no {FORMAT} at all.*{reason}") as caught:
        read(path)
    assert caught.value.hint == "Make it again."


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    """The directory at the end may name the same bytes under a thousand names."""
    path = tmp_path / "it.npz"
    pack(path, sound(path) | {"a.npy": array("|u1", "(100000,)", bytes(100_000))})
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    start = struct.unpack("<I", content[end + 16 : end + 20])[0]
    entry = content[content.rindex(b"PK\x01\x02", 0, end) : end]
    more = b"".join(entry.replace(b".npy", b"%04d" % number) for number in range(1000))
    total = 3 + 1000
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, total, total, end - start + len(more), start, 0)
    path.write_bytes(content[:end] + more + tail)
    with pytest.raises(TraceError, match="damaged"):
        read(path)


def test_an_array_twice(tmp_path: Path) -> None:
    path = tmp_path / "it.npz"
    members = sound(path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.npy", members["a.npy"])
    with pytest.raises(TraceError, match="twice"):
        read(path)


@pytest.mark.parametrize(
    "layers",
    [
        *(None, [], 3, [[]], ["abcd"], [{}] * 4),
        *([[1, 2, 3]], [[0, 8, 2, 64, 1]], [[0, 8, 2.0, 64]], [[0, True, 1, 64]]),
        *([[0, 1 << 20, 2, 64]], [[-1, 8, 2, 64]], [[0, 8, 9, 64]], [[0, 8, 0, 64]], [[0, 8, 2, 1 << 60]]),
        *([[0, 8, 2, 0]],),
    ],
    ids=str,
)
def test_what_is_no_geometry(layers: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        geometry_from_json(layers)


def test_a_geometry_there_and_back() -> None:
    layers = [[0, 8, 2, 64], [3, 128, 8, 4096]]
    assert geometry_to_json(geometry_from_json(layers)) == layers
