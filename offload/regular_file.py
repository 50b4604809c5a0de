"""Opens and reads untrusted files: regular files only, and never more bytes than were asked for.

A FIFO without a writer would block an `open` for ever, and a device may be read without end. Every file of a model
folder, and every trace, profile, weights file and prompts file, is opened here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

MAX_BUFFERS = 512
"""Buffers handed to one preadv; the system's own limit (IOV_MAX) is 1024 on Linux and macOS."""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotRegularFile(OSError):
    """The name leads to a folder, FIFO, socket or device. `strerror` says to which."""

    def __init__(self, kind: str) -> None:
        super().__init__(None, f"it is {kind}, not a file")


class TooLarge(OSError):
    """The file is larger than what is read of its kind. `strerror` says both sizes in bytes."""

    def __init__(self, num_bytes: int, max_bytes: int) -> None:
        super().__init__(None, f"it has {num_bytes} bytes, where at most {max_bytes} are read")


def why(error: OSError) -> str:
    """The reason in words: `No such file or directory`, `it is a FIFO, not a file`."""
    return error.strerror or str(error) or type(error).__name__


def open_regular(path: str | os.PathLike[str], flags: int = 0) -> int:
    """A descriptor to read from, opened with `flags` as well; the caller closes it. Links are followed.

    Never blocks. Raises NotRegularFile, and OSError where the file is missing or may not be read.
    """
    # A socket cannot be opened at all, with an error that does not name the reason.
    require_regular(path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    try:
        _require_regular_mode(os.fstat(fd).st_mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """The state of a regular file, or of the one that a link leads to. Raises NotRegularFile and OSError."""
    try:
        state = os.stat(path)
    except ValueError as error:  # a name with a zero byte
        raise OSError(None, str(error)) from error
    _require_regular_mode(state.st_mode)
    return state


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether it is a regular file, or a link to one. Raises nothing."""
    try:
        require_regular(path)
    except OSError:
        return False
    return True


def read_whole(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a file of at most `max_bytes`. Raises TooLarge, NotRegularFile and OSError."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > max_bytes:
            raise TooLarge(size, max_bytes)
        return read_range(fd, 0, size)
    except EOFError as error:
        raise OSError(None, str(error)) from error
    finally:
        os.close(fd)


def read_range(fd: int, offset: int, num_bytes: int) -> bytes:
    """Exactly `num_bytes` from `offset` on. Raises EOFError where the file ends before, and OSError."""
    content = bytearray(num_bytes)
    if num_bytes:
        read_fully(fd, offset, [memoryview(content)])
    return bytes(content)


def read_fully(fd: int, offset: int, buffers: Sequence[memoryview]) -> int:
    """Fills the buffers, one after the other, with the bytes from `offset` on; returns how many bytes that were.

    Raises EOFError where the file ends before, saying how much is missing, and OSError.
    """
    left = [buffer for buffer in buffers if len(buffer)]
    wanted, done = sum(map(len, left)), 0
    while left:
        num_bytes = os.preadv(fd, left[:MAX_BUFFERS], offset + done)
        if num_bytes == 0:
            raise EOFError(f"the file ends {wanted - done} bytes too early")
        done += num_bytes
        advance(left, num_bytes)
    return done


def advance(buffers: list[memoryview], num_bytes: int) -> None:
    """Takes the first `num_bytes` bytes off the buffers, which have been filled."""
    while buffers and num_bytes >= len(buffers[0]):
        num_bytes -= len(buffers.pop(0))
    if num_bytes:
        buffers[0] = buffers[0][num_bytes:]


def _require_regular_mode(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularFile(next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else"))
