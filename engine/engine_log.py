"""The file that the engine's process writes its output to. That it cannot be written keeps nothing from running."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnwritableLogError(OSError):
    """The log cannot be written; says why."""


def open_log(path: Path) -> int:
    """A descriptor that appends to the log; folders are made as needed. Never blocks. Raises UnwritableLogError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
    except OSError as error:
        raise UnwritableLogError(error.strerror or str(error)) from error
    except ValueError as error:  # a name with a null character
        raise UnwritableLogError(str(error)) from error
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
        os.close(descriptor)
        raise UnwritableLogError("It is a pipe, not a file")
    os.set_blocking(descriptor, True)
    return descriptor
