"""Bytes out of a model's files, into memory that is there already. Light: no torch."""

from __future__ import annotations

import os

from engine.checkpoint.json_file import REFETCH
from engine.errors import CheckpointError
from offload.direct_file import DirectFile
from offload.regular_file import why


def read_file(path: str | os.PathLike[str], offset: int, target: memoryview) -> None:
    """Fills `target` with a file's bytes, past the page cache: they would be twice in memory.

    Raises CheckpointError when the file ends early or cannot be read.
    """
    try:
        with DirectFile(path) as file:
            file.read(offset, [target])
    except EOFError as error:
        raise CheckpointError(f"{path} is truncated, in the middle of a tensor: {error}.", REFETCH) from error
    except OSError as error:
        raise CheckpointError(f"{path}: {why(error)}.", REFETCH) from error
