"""Files of arrays with a header: what traces and profiles are kept in.

Format: an uncompressed numpy archive (`.npz`) of plain arrays, none of them pickled. The array `header` holds UTF-8
JSON, an object whose `format` and `version` say what the others are.

Reading trusts nothing: an archive may hold only stored (not deflated) members, which together are no longer than the
file, so that reading one takes no more memory than the file has bytes; and an array must declare as many bytes as are
there. Source of the layout: numpy's documentation, "numpy.lib.format".
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from offload.atomic_file import replaced
from offload.bounded_json import Limits, NotReadable, parse_object, shown, told
from offload.errors import OffloadError
from offload.geometry import Geometry, LayerGeometry
from offload.regular_file import TooLarge, open_regular, why

_HEADER: Final = "header"
_SUFFIX: Final = ".npy"
_HEADER_LIMITS: Final = Limits(max_bytes=4 << 20, max_depth=8, max_values=100_000)
_MAX_FILE_BYTES: Final = 8 << 30
_MAX_MEMBERS: Final = 10_000
_MAX_LAYERS: Final = 10_000
_MAX_EXPERTS: Final = 0xFFFF
"""Expert numbers are kept as uint16."""
_DAMAGE = (ValueError, TypeError, KeyError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise on a file that is cut, altered or something else; NotImplementedError among them."""


class Archive(NamedTuple):
    """What a file holds."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def write_archive(
    path: Path, file_format: str, version: int, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the file, or leave what was there as it was. Raises OSError when the disk refuses."""
    text = json.dumps({"format": file_format, "version": version, **header})
    columns: dict[str, Any] = {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
    with replaced(path) as file:
        np.savez(file, **columns)


def read_archive(
    path: Path,
    file_format: str,
    version: int,
    error: type[OffloadError],
    remedy: str,
    max_bytes: int = _MAX_FILE_BYTES,
) -> Archive:
    """Read a file written by `write_archive`. Raises `error`, with `remedy` as its hint, when it is anything else, or
    has more than `max_bytes`."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            arrays = _read_arrays(file, max_bytes)
        header = parse_object(arrays.pop(_HEADER).tobytes(), _HEADER_LIMITS)
    except OSError as failure:
        raise error(f"{path} cannot be read: {why(failure)}.", remedy) from failure
    except (_Unusual, NotReadable) as failure:
        raise error(f"{path} is damaged, or no {file_format} at all: {told(failure)}.", remedy) from failure
    except _DAMAGE as failure:
        raise error(f"{path} is damaged, or no {file_format} at all.", remedy) from failure
    if header.get("format") != file_format:
        raise error(f"{path} is no {file_format}, but a {_name(header.get('format'))}.", remedy)
    if header.get("version") != version:
        found = shown(header.get("version"))
        raise error(f"{path} is of version {found}, and this program knows version {version}.", remedy)
    return Archive(header, arrays)


class _Unusual(ValueError):
    """The archive is not of the kind that is written here; says what is different."""


def _read_arrays(file: BinaryIO, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays by name. Raises OSError, _Unusual, and whatever is in _DAMAGE."""
    file_bytes = os.fstat(file.fileno()).st_size
    if file_bytes > max_bytes:
        raise TooLarge(file_bytes, max_bytes)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        _check_members(members, file_bytes)
        return {member.filename.removesuffix(_SUFFIX): _read_array(archive, member) for member in members}


def _check_members(members: list[zipfile.ZipInfo], file_bytes: int) -> None:
    """Before any is read: all of them together must not come to more than the file itself."""
    if len(members) > _MAX_MEMBERS:
        raise _Unusual(f"it holds {len(members)} arrays")
    for member in members:
        name = shown(member.filename)
        if member.compress_type != zipfile.ZIP_STORED:
            raise _Unusual(f"{name} in it is compressed")
        if member.file_size != member.compress_size:
            raise _Unusual(f"{name} in it has {member.compress_size} bytes and declares {member.file_size}")
        if not member.filename.endswith(_SUFFIX):
            raise _Unusual(f"{name} in it is no array")
    if len({member.filename for member in members}) < len(members):
        raise _Unusual("it holds an array twice")
    declared = sum(member.file_size for member in members)
    if declared > file_bytes:
        raise _Unusual(f"its arrays declare {declared} bytes, and the file has {file_bytes}")


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array. What its own header declares is compared with the bytes that are there before it is made."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise _Unusual(f"{shown(member.filename)} is of the array format {version}")
        if dtype.hasobject or dtype.fields is not None or is_fortran:
            raise _Unusual(f"{shown(member.filename)} is no plain array")
        num_bytes = math.prod(shape) * dtype.itemsize
        if not 0 <= num_bytes <= member.file_size:
            raise _Unusual(f"{shown(member.filename)} declares {shown(num_bytes)} bytes and has {member.file_size}")
        if max(shape, default=0) > _MAX_FILE_BYTES:
            raise _Unusual(f"{shown(member.filename)} is no plain array")
        content = stream.read()
    if len(content) != num_bytes:
        raise _Unusual(f"{shown(member.filename)} declares {num_bytes} bytes and has {len(content)}")
    return np.frombuffer(content, dtype).reshape(shape)


def _name(file_format: object) -> str:
    return file_format if isinstance(file_format, str) and len(file_format) <= 60 else shown(file_format)


def geometry_to_json(geometry: Geometry) -> list[list[int]]:
    """Per layer: [layer_number, num_experts, top_k, expert_bytes]."""
    return [[at.layer_number, at.num_experts, at.top_k, at.expert_bytes] for at in geometry.layers]


def geometry_from_json(layers: Any) -> Geometry:
    """The inverse of `geometry_to_json`. Raises TypeError or ValueError when it is none."""
    if not isinstance(layers, list) or not 1 <= len(layers) <= _MAX_LAYERS:
        raise ValueError(f"layers is {shown(layers)}, which is no list of layers")
    for layer in layers:
        if not isinstance(layer, list) or len(layer) != 4 or any(type(number) is not int for number in layer):
            raise ValueError(f"layers holds {shown(layer)}, which is not made of four whole numbers")
        if not 0 <= layer[0] <= _MAX_LAYERS or not layer[1] <= _MAX_EXPERTS or not layer[3] <= 1 << 40:
            raise ValueError(f"layers holds {shown(layer)}, which is no layer")
    return Geometry(tuple(LayerGeometry(*layer) for layer in layers))


def text_of(header: Mapping[str, Any], key: str) -> str:
    """A text of a header. Raises KeyError or ValueError when it is none."""
    value = header[key]
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError(f"{key} is {shown(value)}")
    return value


def number_of(header: Mapping[str, Any], key: str) -> int | float:
    """A number of a header, from 0 to 10^15. Raises KeyError or ValueError when it is none."""
    value = header[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError(f"{key} is {shown(value)}")
    return value
