"""What each process that the engine starts, and the engine's own, does first, and how its parent reads what it says.

A child ends with its parent, and never fails because of its log. Imports nothing of the engine's, and neither torch nor
transformers.
"""

from __future__ import annotations

import ctypes
import io
import os
import select
import signal
import stat
import sys
from collections.abc import Iterator
from typing import TextIO

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Has the system kill this process when its parent ends; ends it at once if the parent is gone already.

    Linux only. Elsewhere a process notices the end of its parent by the end of the connection to it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(0)


def answers_on_stdout() -> TextIO:
    """Standard output for answers to the parent alone: what libraries print goes to standard error from now on, and
    never fails."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    make_log_unfailing()
    return answers


def lines_of(pipe: int, poll_s: float) -> Iterator[bytes | None]:
    """Each whole line that a child writes, until it closes its end; None whenever none came for `poll_s` seconds."""
    said = b""
    while True:
        if not select.select([pipe], [], [], poll_s)[0]:
            yield None
            continue
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return
        *lines, said = (said + piece).split(b"\n")
        yield from lines


class _LogWriter(io.RawIOBase):
    """Writes to a file descriptor, and drops what the system does not take: a full disk, a closed pipe."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.problem = ""
        """Why text was lost, in the system's words; empty: none was."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def write(self, text: object) -> int:
        """Writes at once; returns the number of bytes taken: all of them, also where they were dropped."""
        piece = memoryview(text).cast("B")  # type: ignore[arg-type]
        num_bytes = len(piece)
        try:
            while piece:
                piece = piece[os.write(self._descriptor, piece) :]
        except OSError as error:
            self.problem = error.strerror or str(error)
        return num_bytes


_writers: list[_LogWriter] = []


def make_log_unfailing() -> None:
    """Replaces `sys.stdout` and `sys.stderr` by streams whose writes never raise. Call before libraries keep them."""
    _writers.clear()
    sys.stdout, sys.stderr = (_stream(descriptor) for descriptor in (1, 2))


def _stream(descriptor: int) -> io.TextIOWrapper:
    writer = _LogWriter(descriptor)
    _writers.append(writer)
    # Unbuffered, as the interpreter's own -u has it: what is not written would be lost with a killed process.
    return io.TextIOWrapper(writer, "utf-8", "backslashreplace", write_through=True)  # type: ignore[arg-type]


def log_problem() -> str:
    """Why the log of this process cannot be relied on; empty: nothing is known against it."""
    if any(_is_null(writer.fileno()) for writer in _writers):
        return "it could not be opened"
    return next((writer.problem for writer in _writers if writer.problem), "")


def _is_null(descriptor: int) -> bool:
    """Whether a descriptor is the null device."""
    try:
        status = os.fstat(descriptor)
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return False
