"""A function in a process and a pseudo-terminal of its own, whose screen nobody looks at."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from app.process.crash_log import log_crash
from app.process.stop_signals import forget_in_child

_POLL_S = 0.1
_GRACE_S = 0.5
"""How long the process may take to end before it is killed."""


class UnseenTerminal:
    """Runs `work(tell)` there; what it tells arrives as `messages`. What it draws is counted and dropped."""

    def __init__(self, work: Callable[[Callable[[object], None]], None], columns: int, rows: int) -> None:
        """Forks: call while there is one thread. What `work` tells must be picklable."""
        self.num_drawn_bytes = 0
        self._messages, told = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            _be(work, told, columns, rows)
        told.close()

    def messages(self) -> Iterator[object | None]:
        """What is told, and None every now and then, until the process has ended."""
        sources: list[int | Connection] = [self._master, self._messages]
        while True:
            ready = select.select(sources, [], [], _POLL_S)[0]
            if self._master in ready and not self._read():
                sources.remove(self._master)
            if self._messages not in ready:
                yield None
                continue
            try:
                yield self._messages.recv()
            except EOFError:
                return

    def end(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)

    def close(self) -> None:
        """End it whatever it does."""
        self.end()
        deadline = time.monotonic() + _GRACE_S
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            if select.select([self._master], [], [], _POLL_S)[0] and not self._read():
                time.sleep(_POLL_S)
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
        os.close(self._master)
        self._messages.close()

    def _read(self) -> bool:
        """Take in what it drew; False: it has let go of its terminal."""
        try:
            drawn = os.read(self._master, 1 << 16)
        except OSError:
            return False
        self.num_drawn_bytes += len(drawn)
        return bool(drawn)


def _be(work: Callable[[Callable[[object], None]], None], told: Connection, columns: int, rows: int) -> None:
    """The new process, to its end."""
    status = 1
    forget_in_child()
    try:
        termios.tcsetwinsize(0, (rows, columns))
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        work(told.send)
        status = 0
    except Exception as error:  # noqa: BLE001  nobody sees what would be printed
        log_crash(error)
    finally:
        os._exit(status)
