"""What the operating system refuses, in words: why, where, and what to do about it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from engine.errors import MoeChatError

_NO_SPACE = "Free some space (`moe-chat clean` shows what takes it), or name another home in MOE_CHAT_HOME."
_NOT_YOURS = "Check the folder and who owns it, or name another home in MOE_CHAT_HOME."
_TOO_MANY_FILES = "Let the program open more files: `ulimit -n 1024`, then start it again."
_REMOVE = "Remove it, or name another home in MOE_CHAT_HOME."

_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _NO_SPACE),
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EEXIST), _NOT_YOURS
    ),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _TOO_MANY_FILES),
}
_PROBE_BYTES = 16 * 1024
_DATABASE_FILES = 4
"""The database, its log, the log's index, and a journal."""
_NOT_A_FILE = "it is not a file"


class SystemRefusal(MoeChatError):
    """The operating system refused something, in its words and with what to do."""

    title = "Files"

    def __init__(self, error: OSError) -> None:
        place = f"{error.filename}: " if error.filename is not None else ""
        super().__init__(f"{place}{reason(error)}.", advice(error))


def reason(error: OSError) -> str:
    """Why, as the system says it, without a full stop."""
    return error.strerror or str(error) or type(error).__name__


def advice(error: OSError) -> str:
    """What to do about it; empty where that is not known."""
    return _REMOVE if error.strerror == _NOT_A_FILE else _ADVICE.get(error.errno or 0, "")


def why_unwritable(folder: Path) -> OSError | None:
    """What the system says when files of 16 KiB are made in `folder`, as many at once as a database needs; None: it
    lets that happen.

    The files have no names, or lose them at once.
    """
    try:
        with contextlib.ExitStack() as probes:
            for _ in range(_DATABASE_FILES):
                probe = probes.enter_context(tempfile.TemporaryFile(dir=folder))
                probe.write(bytes(_PROBE_BYTES))
                probe.flush()
    except OSError as error:
        return error
    return None


def open_file(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a regular file to read, or, with a flag to write, to append; never waits, as a FIFO would.

    Raises OSError, also for what is no regular file.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, _NOT_A_FILE, str(path))
        if not flags & (os.O_WRONLY | os.O_RDWR):
            return os.fdopen(descriptor, "rb")
        return os.fdopen(descriptor, "ab" if flags & os.O_WRONLY else "a+b")
    except BaseException:
        os.close(descriptor)
        raise
