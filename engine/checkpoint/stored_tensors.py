"""Every tensor of a checkpoint folder, as the headers of its files have it. Light: no numpy."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.header import StoredTensor, read_header
from engine.checkpoint.json_file import REFETCH
from engine.checkpoint.shards import choose_shards
from engine.errors import CheckpointError
from offload.bounded_json import shown


class Placed(NamedTuple):
    """A tensor and its file."""

    path: Path
    tensor: StoredTensor


def checkpoint_files(folder: Path) -> list[Path]:
    """The safetensors shards of a folder, in order. Raises CheckpointError or UnsupportedModelError."""
    paths, missing, _ = choose_shards(folder)
    if missing:
        listed = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise CheckpointError(f"{len(missing)} of {len(paths)} shards are missing in {folder}: {listed}.", REFETCH)
    return list(paths)


def stored_tensors(folder: Path) -> dict[str, Placed]:
    """Every tensor, by key. Raises CheckpointError, for a key in two shards too; UnsupportedModelError."""
    found: dict[str, Placed] = {}
    paths = checkpoint_files(folder)
    for path in paths:
        for tensor in read_header(path):
            if tensor.key in found:
                raise CheckpointError(
                    f"{shown(tensor.key)} is stored twice, in {found[tensor.key].path} and {path}.", REFETCH
                )
            found[tensor.key] = Placed(path, tensor)
    if not found:
        raise CheckpointError(f"{paths[0]} holds no tensors.", REFETCH)
    return found
