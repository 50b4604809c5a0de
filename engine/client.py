"""The parent's side of the engine's process: spawns it, sends commands, receives events. Light: no torch.

    [user interface] --commands--> socket --> [control thread of the child]
                     <--events--- socket <--  [sender thread of the child]

A reader thread here turns what arrives into an ordered queue and a latest snapshot; nothing blocks the caller.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic

from engine.api import Close, Command
from engine.errors import EngineDiedError
from engine.events import Event, Failed, Snapshot

CLOSE_GRACE_S = 1.5
"""Silence after which a closing engine is killed."""


class EngineClient:
    """One engine process. `start` from a thread that lives as long as the engine: the child dies with it."""

    def __init__(self, log_path: Path) -> None:
        """`log_path` receives the child's stdout and stderr, tracebacks included."""
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._events: deque[Event] = deque()
        self._arrived = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._is_closing = False
        self._send_lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Spawns the process; it imports torch at once. May be called again after the engine died."""
        self._release()
        self._is_closing, self._snapshot = False, None
        ours, theirs = socket.socketpair()
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with theirs, self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "engine.process.server", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=_child_environment(),
            )
        self._connection = Connection(ours.detach())
        self._reader = threading.Thread(target=self._read, args=(self._connection,), name="engine-reader", daemon=True)
        self._reader.start()

    def send(self, command: Command) -> None:
        """Sends a command. Raises EngineDiedError when there is no engine to receive it."""
        with self._send_lock:
            if self._connection is None:
                raise EngineDiedError("The engine is not running.", "Start it again.")
            try:
                self._connection.send(command)
            except OSError as error:
                raise EngineDiedError(
                    f"The engine is gone ({self.exit_note}).", f"Its log: {self._log_path}"
                ) from error

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

    def close(self) -> None:
        """Asks the engine to end, and kills it after 1.5 s. Safe to call twice."""
        self._is_closing = True
        with contextlib.suppress(EngineDiedError):
            self.send(Close())
        if self._process is not None:
            try:
                self._process.wait(CLOSE_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._release()

    def _release(self) -> None:
        with self._send_lock:
            connection, self._connection = self._connection, None
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(CLOSE_GRACE_S)
        if connection is not None:
            connection.close()

    def _read(self, connection: Connection) -> None:
        while True:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                break
            if isinstance(message, Snapshot):
                self._snapshot = message
            else:
                self._put(message)
        if not self._is_closing:
            self._report_death()

    def _put(self, event: Event) -> None:
        with self._arrived:
            self._events.append(event)
            self._arrived.notify_all()

    def _report_death(self) -> None:
        deadline = monotonic() + CLOSE_GRACE_S
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(deadline - monotonic(), 0))
        note = self.exit_note or "it closed its connection"
        self._put(
            Failed(
                None,
                EngineDiedError.title,
                f"The engine's process ended: {note}.",
                f"Start it again. Its log: {self._log_path}",
                True,
            )
        )


def _child_environment() -> dict[str, str]:
    """The child's environment.

    No library progress bars. Few malloc arenas (each keeps freed memory for itself), and blocks of 4 MiB and more that
    always go back to the system, so that a model's memory is free for the next one. OpenMP threads that wait for each
    other spin briefly: by default they spin so long that a busy core costs 3-10x. oneDNN keeps few compiled kernels:
    prefill makes one for every number of rows, a third of a MiB each, and a cache of 1024 would outgrow the budget (of
    64, prefill takes a third longer).
    """
    ours = {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
        "GOMP_SPINCOUNT": "1000",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
        "LRU_CACHE_CAPACITY": "256",
        "PYTHONUNBUFFERED": "1",
    }
    return {**ours, **os.environ}
