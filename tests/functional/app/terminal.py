"""A program in a pseudo-terminal, its screen kept by a terminal emulator: what a user would see, and what they type."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import psutil
import pyte

from tests.patience import PATIENCE_S

ENTER, ESCAPE, DOWN, CTRL_G, CTRL_Q, CTRL_R, CTRL_Z, F5, F8 = (
    "\r",
    "\x1b",
    "\x1b[B",
    "\x07",
    "\x11",
    "\x12",
    "\x1a",
    "\x1b[15~",
    "\x1b[19~",
)


class _Screen(pyte.Screen):
    """A screen that answers as terminals do when they are asked what they are."""

    def __init__(self, columns: int, rows: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, rows)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """A program with a terminal of its own. `close` ends it whatever it does."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], *, columns: int = 120, rows: int = 40
    ) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], list(argv), dict(environment))
        self.resize(columns, rows)
        self._screen = _Screen(columns, rows, self.send)
        self._stream = pyte.ByteStream(self._screen)
        self._status: int | None = None

    def send(self, text: str) -> None:
        """Type."""
        self.send_bytes(text.encode())

    def send_bytes(self, content: bytes) -> None:
        """What a terminal sends, text or not."""
        os.write(self._master, content)

    def resize(self, columns: int, rows: int) -> None:
        """Another size, as when a window is dragged."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "_screen"):
            self._screen.resize(rows, columns)

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self._screen.display)

    def until(self, condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Let it run until `condition` holds."""
        deadline = monotonic() + patience_s
        while not condition():
            assert monotonic() < deadline, f"{what}\n{self.text}"
            self.read(0.05)

    def see(self, *texts: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until all of these are on the screen."""
        self.until(lambda: all(text in self.text for text in texts), f"{texts} never appeared in", patience_s)

    def read(self, wait_s: float) -> None:
        """Take in what it writes within a time."""
        if not select.select([self._master], [], [], wait_s)[0]:
            return
        with contextlib.suppress(OSError):  # the program has closed the terminal
            self._stream.feed(os.read(self._master, 1 << 16))

    def wait(self, patience_s: float) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        self.until(lambda: self.has_ended, "it never ended", patience_s)
        assert self._status is not None
        return os.waitstatus_to_exitcode(self._status)

    @property
    def has_ended(self) -> bool:
        """It is gone."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def children(self) -> list[psutil.Process]:
        """The processes it has started, and theirs."""
        return psutil.Process(self.pid).children(recursive=True)

    def close(self) -> None:
        """End it and what it has started."""
        if not self.has_ended:
            left = self.children()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        os.close(self._master)
