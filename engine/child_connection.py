"""The parent's end of the connection to one engine process. Light: no torch."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection

from engine.api import Close, Command
from engine.events import Event, Snapshot


class ChildConnection:
    """Sends and receives in two threads of its own; no method waits for the process, except `wait_for_end`."""

    def __init__(
        self, ours: socket.socket, take: Callable[[Event | Snapshot], None], on_death: Callable[[], None]
    ) -> None:
        """Owns `ours`. `take` gets what arrives, `on_death` is called when the connection ends unasked; both are called
        by the reader thread."""
        self._socket = ours
        self._connection = Connection(os.dup(ours.fileno()))
        self._take, self._on_death = take, on_death
        self._is_ending = self._is_gone = False
        self._queued: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="engine-reader", daemon=True)
        self._sender = threading.Thread(target=self._send_all, name="engine-sender", daemon=True)
        self._reader.start()
        self._sender.start()

    def send(self, command: Command) -> bool:
        """Queues a command behind the others. False: the process is gone, or was asked to end."""
        message = pickle.dumps(command)
        with self._changed:
            if self._is_gone or self._is_ending:
                return False
            self._queued.append(message)
            self._changed.notify_all()
        return True

    def ask_to_end(self) -> None:
        """Sends Close, before everything that still waits to be sent; nothing that follows is reported."""
        with self._changed:
            self._is_ending = True
            self._queued.clear()
            self._queued.append(pickle.dumps(Close()))
            self._changed.notify_all()

    def wait_for_end(self, timeout: float) -> None:
        """Waits until the process has closed its end: it exits, or is dead."""
        self._reader.join(timeout)

    def close(self) -> None:
        """Ends both threads and frees the socket."""
        self._mark_gone()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that is blocked on it
        for thread in (self._reader, self._sender):
            if thread is not threading.current_thread():
                thread.join()
        self._socket.close()
        self._connection.close()

    def _mark_gone(self) -> None:
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()

    def _read(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                break
            self._take(message)
        self._mark_gone()
        if not self._is_ending:
            self._on_death()

    def _send_all(self) -> None:
        while (message := self._next()) is not None:
            try:
                self._connection.send_bytes(message)
            except OSError:
                self._mark_gone()

    def _next(self) -> bytes | None:
        """The next message to send, waiting for one; None: there is nobody to send to."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._queued) or self._is_gone)
            return None if self._is_gone else self._queued.popleft()
