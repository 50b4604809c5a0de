"""The child's side: `python -P -m engine.server FD PARENT_PID`.

Main thread: the engine. Control thread: commands; cancel, mode and close act at once, also in load and prefill. Sender
thread: ordered events and the latest snapshot; while loading it repeats the last progress, so that a reader hears
something at least once a second. The process ends with its parent: by signal, and by the end of the connection.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
import traceback
from collections import deque
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from engine.api import BenchOverhead, Cancel, Close, Command, Load, SetMode, Submit, Verify
from engine.errors import ConfigError, MoeChatError
from engine.events import Event, Failed, LoadProgress, ModeChanged, Snapshot, TaskEnded, TaskProgress

if TYPE_CHECKING:
    from engine.session import Session

_REPEAT_S = 0.5
_CLOSE_S = 0.5
_SWITCH_INTERVAL_S = 0.0005
"""A link thread that has a copy to report waits this long for the interpreter at most; Python's default is 5 ms."""


def main() -> None:
    """Runs until the connection ends or Close arrives."""
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    outbox = Outbox(connection)
    inbox = Inbox(connection)
    outbox.put(LoadProgress("starting the engine (torch, transformers)", 0, 0, ""))
    Worker(inbox, outbox).run()
    outbox.flush()
    os._exit(0)


def _die_with(parent: int) -> None:
    """Linux: SIGKILL when the parent dies. Elsewhere the connection's end does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class Outbox:
    """What goes to the parent. `put` and `publish` never block; a slow reader delays only the sender thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._events: deque[Event] = deque()
        self._snapshot: Snapshot | None = None
        self._changed = threading.Condition()
        self._repeat: LoadProgress | None = None
        self._is_sending = False
        threading.Thread(target=self._send_all, name="sender", daemon=True).start()

    def put(self, event: Event) -> None:
        """Queues an event behind the others."""
        with self._changed:
            self._repeat = event if isinstance(event, LoadProgress) else None
            self._events.append(event)
            self._changed.notify_all()

    def publish(self, snapshot: Snapshot) -> None:
        """Replaces the snapshot that waits to be sent."""
        with self._changed:
            self._snapshot = snapshot
            self._changed.notify_all()

    def flush(self, timeout: float = 1.0) -> None:
        """Waits until everything queued was sent."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._events or self._snapshot or self._is_sending), timeout)

    def _next(self) -> list[Event | Snapshot]:
        with self._changed:
            self._is_sending = False
            self._changed.notify_all()
            has_news = self._changed.wait_for(lambda: bool(self._events or self._snapshot), _REPEAT_S)
            if not has_news:
                return [self._repeat] if self._repeat is not None else []
            batch: list[Event | Snapshot] = list(self._events)
            if self._snapshot is not None:
                batch.append(self._snapshot)
            self._events.clear()
            self._snapshot, self._is_sending = None, True
            return batch

    def _send_all(self) -> None:
        while True:
            for message in self._next():
                try:
                    self._connection.send(message)
                except OSError:
                    os._exit(0)


class Inbox:
    """What comes from the parent: queued commands, and the flags that act at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.commands: queue.Queue[Command] = queue.Queue()
        self.wanted_mode: str | None = None
        self.is_closing = False
        self._cancelled: set[int] = set()
        self._current: int | None = None
        self._is_busy = self._is_current_cancelled = False
        self.is_importing = True
        """Nothing is there yet that would have to be closed."""
        self._is_done = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._receive_all, name="control", daemon=True).start()

    def begin(self, request_id: int | None) -> None:
        """A command is taken up; it may have been cancelled while it waited."""
        with self._lock:
            self._current, self._is_busy = request_id, True
            self._is_current_cancelled = request_id in self._cancelled

    def end(self) -> None:
        with self._lock:
            self._cancelled.discard(self._current)
            self._is_busy, self._current = False, None

    def close(self) -> None:
        """The worker is through: what was to be closed is closed."""
        self._is_done.set()

    def is_cancelled(self) -> bool:
        """Whether the running command should stop."""
        return self._is_current_cancelled or self.is_closing

    def _receive_all(self) -> None:
        while True:
            try:
                command = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            self._receive(command)

    def _receive(self, command: Command) -> None:
        if isinstance(command, Cancel):
            with self._lock:
                is_current = self._is_busy and command.request_id in (None, self._current)
                self._is_current_cancelled |= is_current
                if command.request_id is not None and not is_current:
                    self._cancelled.add(command.request_id)
        elif isinstance(command, Close):
            self.is_closing = True
            self.commands.put(command)
            if not self.is_importing:
                self._is_done.wait(_CLOSE_S)
            os._exit(0)
        else:
            if isinstance(command, SetMode):
                self.wanted_mode = command.mode
            self.commands.put(command)


class Worker:
    """The engine's thread: one command after the other, every failure an event."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._session: Session | None = None

    def run(self) -> None:
        """Until Close."""
        self._import()
        self._inbox.is_importing = False
        while True:
            command = self._inbox.commands.get()
            if isinstance(command, Close):
                break
            self._handle(command)
        if self._session is not None:
            self._session.close()
        self._inbox.close()

    def _import(self) -> None:
        try:
            import engine.session  # noqa: F401  (seconds: done while the user reads the menu)
        except Exception as error:  # noqa: BLE001 - told as an event
            traceback.print_exc()
            self._outbox.put(_failed(None, error, is_fatal=True))
            self._outbox.flush()
            os._exit(1)

    def _handle(self, command: Command) -> None:
        from engine.model_loading import LoadCancelled
        from offload.errors import OffloadError, WaitCancelled

        request_id = getattr(command, "request_id", None)
        self._inbox.begin(request_id)
        try:
            self._dispatch(command)
        except (LoadCancelled, WaitCancelled):
            self._outbox.put(Failed(request_id, "Stopped", "It was stopped.", "", is_fatal=False))
        except (MoeChatError, OffloadError) as error:
            traceback.print_exc()
            self._outbox.put(_failed(request_id, error, is_fatal=False))
        except Exception as error:  # noqa: BLE001 - told as an event, the engine goes on
            traceback.print_exc()
            self._outbox.put(_failed(request_id, error, is_fatal=False))
        finally:
            self._inbox.end()
            sys.stdout.flush()

    def _dispatch(self, command: Command) -> None:
        if isinstance(command, Load):
            self._load(command)
        elif isinstance(command, SetMode):
            self._set_mode(command.mode)
        elif isinstance(command, Submit):
            self._loaded().answer(command)
        elif isinstance(command, Verify):
            self._verify(command)
        elif isinstance(command, BenchOverhead):
            self._bench(command)

    def _load(self, command: Load) -> None:
        from engine.session import Session

        if self._session is not None:
            session, self._session = self._session, None
            session.close()
            del session
        inbox, outbox = self._inbox, self._outbox
        config = command.config
        inbox.wanted_mode = inbox.wanted_mode or config.mode
        self._session = Session(
            config, outbox.put, outbox.publish, inbox.is_cancelled, lambda: inbox.wanted_mode or config.mode
        )
        self._set_mode(inbox.wanted_mode)
        self._session.publish()
        outbox.put(self._session.ready())

    def _set_mode(self, mode: str) -> None:
        """A change outside an answer; inside one the session has seen it already."""
        if self._session is None:
            self._outbox.put(ModeChanged(mode, None, None))
        elif self._session.mode != mode:
            self._session.set_mode(mode)

    def _loaded(self) -> Session:
        if self._session is None:
            raise ConfigError("No model is loaded.", "Load one first.")
        return self._session

    def _progress(self, request_id: int, stage: str, done: int, total: int) -> None:
        self._outbox.put(TaskProgress(request_id, stage, done, total))

    def _verify(self, command: Verify) -> None:
        from engine.verify import verify

        session, number = self._loaded(), command.request_id
        outcome = verify(
            session.engine, command.num_tok, lambda *where: self._progress(number, *where), self._inbox.is_cancelled
        )
        self._outbox.put(TaskEnded(number, outcome.is_ok, outcome.report, outcome.lines))

    def _bench(self, command: BenchOverhead) -> None:
        from engine.bench.overhead import bench_overhead

        session, number = self._loaded(), command.request_id
        outcome = bench_overhead(
            session.engine, command.num_rounds, lambda *where: self._progress(number, *where), self._inbox.is_cancelled
        )
        self._outbox.put(TaskEnded(number, outcome.is_ok, outcome.report, outcome.lines))


def _failed(request_id: int | None, error: Exception, is_fatal: bool) -> Failed:
    """Any exception as an event: our own say what to do, others point to the log."""
    title = getattr(error, "title", "Unexpected error")
    message = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    hint = getattr(error, "hint", None)
    return Failed(
        request_id, title, message, hint if hint is not None else "The details are in the engine's log.", is_fatal
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
