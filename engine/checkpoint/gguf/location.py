"""From a path to a GGUF model: a file, any part of a split one, or a folder that holds one model's files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine.checkpoint.gguf.split_files import SUFFIX, split_name
from engine.errors import CheckpointError
from offload.regular_file import is_regular, open_regular, read_range

_MAGIC: Final = b"GGUF"
_COMPANIONS: Final = ("mmproj", "imatrix")
"""How the names of files begin that lie beside a model and are none."""
_MAX_LISTED = 3


def is_gguf(path: Path) -> bool:
    """Whether this file is a GGUF model, by its name or else by its first bytes. Raises nothing."""
    if path.suffix == SUFFIX:
        return not path.is_dir()
    if not is_regular(path):
        return False
    try:
        fd = open_regular(path)
        try:
            return read_range(fd, 0, len(_MAGIC)) == _MAGIC
        finally:
            os.close(fd)
    except (OSError, EOFError):
        return False


def find_gguf(path: Path) -> Path | None:
    """The model's file, absolute; of a split model the first part. None: a folder without GGUF files, or another file.

    Links are not followed: the names of a split model's parts belong together. Raises CheckpointError for a folder
    with the files of several models.
    """
    path = Path(os.path.abspath(path))
    if not path.is_dir():
        return _first_part(path) if is_gguf(path) else None
    found = models_in(path)
    if len(found) > 1:
        listed = ", ".join(file.name for file in found[:_MAX_LISTED]) + (", ..." if len(found) > _MAX_LISTED else "")
        raise CheckpointError(
            f"{path} holds {len(found)} GGUF models: {listed}.", f"Name the file of one of them, such as {found[0]}."
        )
    return found[0] if found else None


def models_in(folder: Path) -> list[Path]:
    """The GGUF models in a folder, of each the first part that is there, by name. Raises nothing."""
    try:
        names = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and not path.is_dir())
    except OSError:
        return []
    return first_of_each(names)


def first_of_each(names: Iterable[Path]) -> list[Path]:
    """Of the parts of each split model the first one, and every other file that is no companion, in order."""
    found: dict[object, Path] = {}
    for path in names:
        if not is_companion(path.name):
            part = split_name(path)
            found.setdefault((part.stem, part.num_parts) if part else path.name, path)
    return list(found.values())


def is_companion(name: str) -> bool:
    """Whether a file of this name lies beside a model and is none: a projector of images, or an importance matrix."""
    return name.lower().startswith(_COMPANIONS)


def model_name(path: Path) -> str:
    """What to call the model of a file: its name without suffix and part number."""
    part = split_name(path)
    return part.stem if part else path.name.removesuffix(SUFFIX)


def _first_part(path: Path) -> Path:
    part = split_name(path)
    first = path.with_name(part.part(1)) if part else path
    return first if os.path.lexists(first) else path
