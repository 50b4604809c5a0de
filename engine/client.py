"""The parent's side of the engine's process: spawns it, sends commands, receives events. Light: no torch.

    [user interface] --> [sender thread] --commands--> socket --> [control thread of the child]
                     <-- [reader thread] <--events---- socket <-- [sender thread of the child]

Nothing here waits for the child, except `close`, which ends it within a second whatever it does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from time import monotonic

from engine.api import Command
from engine.child_connection import ChildConnection
from engine.engine_log import UnwritableLogError, open_log
from engine.errors import EngineDiedError
from engine.events import Event, Failed, Notice, Snapshot

CLOSE_GRACE_S = 0.2
"""How long a closing engine may take before it is killed. It holds nothing that has to be saved: what it writes to the
disk is written beside its place and renamed."""
_KILLED_S = 0.5
"""How long the system may take to end a killed process. The rest of its memory is freed behind our back."""


class EngineClient:
    """One engine process at a time. `start` from a thread that lives as long as the engine: the child dies with it."""

    def __init__(self, log_path: Path) -> None:
        """`log_path` receives the child's stdout and stderr, tracebacks included; a `Notice` tells if it cannot."""
        self._log_path = log_path
        self._log_note = f"Its log: {log_path}"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: ChildConnection | None = None
        self._events: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._closing_since_s: float | None = None

    def start(self) -> None:
        """Spawns the process; it imports torch at once. One that runs is ended first. Raises EngineDiedError."""
        self.close()
        self._process, self._snapshot = None, None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_started(error) from error
        try:
            log = self._open_log()
        except OSError as error:
            ours.close()
            theirs.close()
            raise _not_started(error) from error
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "engine.process.server", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_child_environment(),
            )
        except OSError as error:
            ours.close()
            raise _not_started(error) from error
        finally:
            theirs.close()
            os.close(log)
        self._connection = ChildConnection(ours, self._take, self._report_death)

    def send(self, command: Command) -> None:
        """Hands a command over, and never waits. Raises EngineDiedError when there is no engine to receive it."""
        connection = self._connection
        if connection is None:
            raise EngineDiedError("The engine is not running.", "Start it again.")
        if not connection.send(command):
            raise EngineDiedError(f"The engine is gone ({self.exit_note or 'it is ending'}).", self._log_note)

    def drain(self) -> list[Event]:
        """The events that have arrived, in order. Never blocks."""
        with self._arrived:
            events = list(self._events)
            self._events.clear()
        return events

    def wait_event(self, timeout: float | None = None) -> Event | None:
        """The next event, waiting at most `timeout` seconds; None when none came."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._events), timeout)
            return self._events.popleft() if self._events else None

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest state; None before the first."""
        return self._snapshot

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._process.pid if self._process is not None else None

    @property
    def exit_note(self) -> str:
        """How the process ended, for a person; empty while it runs."""
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return ""
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")

    def begin_close(self) -> None:
        """Asks the engine to end, and does not wait for it: `close` does, and waits the less."""
        if self._connection is not None and self._closing_since_s is None:
            self._closing_since_s = monotonic()
            self._connection.ask_to_end()

    def close(self) -> None:
        """Ends the engine: asks it to, and kills it with all that it has started after 0.2 s. Safe to call twice."""
        self.begin_close()
        connection, process = self._connection, self._process
        if process is not None and process.returncode is None:
            if connection is not None and self._closing_since_s is not None:
                connection.wait_for_end(max(self._closing_since_s + CLOSE_GRACE_S - monotonic(), 0))
            _kill_group(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_S)
        self._connection, self._closing_since_s = None, None
        if connection is not None:
            connection.close()

    def _open_log(self) -> int:
        try:
            log = open_log(self._log_path)
        except UnwritableLogError as error:
            self._log_note = f"There is no log: {self._log_path} cannot be written."
            hint = "Check the folder and who owns it, or name another home by the environment variable MOE_CHAT_HOME."
            self._put(
                Notice(f"The engine's log {self._log_path} cannot be written ({error}); nothing is logged.", hint)
            )
            return os.open(os.devnull, os.O_WRONLY)
        self._log_note = f"Its log: {self._log_path}"
        return log

    def _take(self, message: Event | Snapshot) -> None:
        if isinstance(message, Snapshot):
            self._snapshot = message
        else:
            self._put(message)

    def _put(self, event: Event) -> None:
        with self._arrived:
            self._events.append(event)
            self._arrived.notify_all()

    def _report_death(self) -> None:
        """The connection ended, and nobody has asked for it."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILLED_S)
        note = self.exit_note or "it closed its connection"
        message = f"The engine's process ended: {note}."
        self._put(Failed(None, EngineDiedError.title, message, f"Start it again. {self._log_note}", True))


def _not_started(error: OSError) -> EngineDiedError:
    is_for_files = error.errno in (errno.EMFILE, errno.ENFILE)
    hint = "Let it open more files: `ulimit -n 1024`." if is_for_files else "Free some memory, and try again."
    return EngineDiedError(f"The engine's process could not be started: {error.strerror or error}.", hint)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a child that leads a session, with everything in it: downloads, builds.

    The child must not have been waited for: until then its number is no other process's.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses where only a zombie is left
        os.killpg(process.pid, signal.SIGKILL)


def _child_environment() -> dict[str, str]:
    """The child's environment.

    No library progress bars. Few malloc arenas (each keeps freed memory for itself), and blocks of 4 MiB and more that
    always go back to the system, so that a model's memory is free for the next one. OpenMP threads that wait for each
    other spin briefly: by default they spin so long that a busy core costs 3-10x. oneDNN keeps few compiled kernels:
    prefill makes one for every number of rows, a third of a MiB each and more than half with AVX512-BF16, and a cache
    of 1024 would outgrow the budget (of 64, prefill takes a third longer). torch keeps a second cache above oneDNN's,
    which holds them longer and makes nothing faster. ggml starts a debugger when it ends the process; it need not.
    """
    ours = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
        "GOMP_SPINCOUNT": "1000",
        "GGML_NO_BACKTRACE": "1",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
        "LRU_CACHE_CAPACITY": "16",
        "PYTHONUNBUFFERED": "1",
    }
    return {**ours, **os.environ}
