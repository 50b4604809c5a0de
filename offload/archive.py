"""Files of arrays with a header: what traces and profiles are kept in.

Format: an uncompressed numpy archive (`.npz`) of plain arrays, none of them pickled. The array `header` holds UTF-8
JSON, an object whose `format` and `version` say what the others are.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offload.atomic_file import replaced
from offload.errors import OffloadError
from offload.geometry import Geometry, LayerGeometry

_HEADER = "header"
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


def read_archive(path: Path, file_format: str, version: int, error: type[OffloadError], remedy: str) -> Archive:
    """Read a file written by `write_archive`. Raises `error`, with `remedy` as its hint, when it is anything else."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop(_HEADER).tobytes().decode())
        found = header.get("format"), header.get("version")
    except OSError as failure:
        raise error(f"{path} cannot be read: {failure.strerror or failure}.", remedy) from failure
    except (*_DAMAGE, AttributeError) as failure:
        raise error(f"{path} is damaged, or no {file_format} at all.", remedy) from failure
    if found[0] != file_format:
        raise error(f"{path} is no {file_format}, but a {found[0]}.", remedy)
    if found[1] != version:
        raise error(f"{path} is of version {found[1]}, and this program knows version {version}.", remedy)
    return Archive(header, arrays)


def geometry_to_json(geometry: Geometry) -> list[list[int]]:
    """Per layer: [layer_number, num_experts, top_k, expert_bytes]."""
    return [[at.layer_number, at.num_experts, at.top_k, at.expert_bytes] for at in geometry.layers]


def geometry_from_json(layers: Any) -> Geometry:
    """The inverse of `geometry_to_json`. Raises TypeError or ValueError when it is none."""
    if any(type(number) is not int for layer in layers for number in layer):
        raise ValueError("a geometry is made of whole numbers")
    return Geometry(tuple(LayerGeometry(*layer) for layer in layers))
