"""Whether files that are in use were changed since: weights overwritten in place while a model answers from them.

A stamp costs one `stat` a file. Light: no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.errors import CheckpointError

_HINT = "What was answered since may be wrong. Restore the file, then load the model again."


class FileStamp(NamedTuple):
    """What changes when a file is written to, or replaced by another one."""

    path: Path
    num_bytes: int
    modified_ns: int
    inode: tuple[int, int]
    """(device, inode)."""


FilesStamp = tuple[FileStamp, ...]


def stamp_files(paths: Iterable[Path]) -> FilesStamp:
    """The state of the files now. Raises OSError where one is missing."""
    return tuple(_stamp(path) for path in paths)


def changed_file(stamps: FilesStamp) -> Path | None:
    """The first file that was written to, replaced or removed since it was stamped. Raises nothing."""
    for stamp in stamps:
        try:
            if _stamp(stamp.path) != stamp:
                return stamp.path
        except OSError:
            return stamp.path
    return None


def require_unchanged(stamps: FilesStamp) -> None:
    """Raises CheckpointError, which names the file, when one has changed."""
    path = changed_file(stamps)
    if path is not None:
        raise CheckpointError(f"{path} was changed while the model was in use.", _HINT)


def _stamp(path: Path) -> FileStamp:
    state = os.stat(path)
    return FileStamp(path, state.st_size, state.st_mtime_ns, (state.st_dev, state.st_ino))
