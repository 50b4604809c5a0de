"""The two ends of the connection inside the engine's process: what goes out, and what comes in."""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection

from engine.api import BuildProfile, Cancel, Close, Command, CountTokens, Load, SetDomain, SetMode, Submit
from engine.events import Event, LoadProgress, PrefillProgress, Snapshot, TaskProgress
from engine.process.failures import failure_of

_REPEAT_S = 0.5
"""Unfinished work that says nothing new has its last progress repeated after this time."""
_CLOSE_S = 0.15
"""How long the worker may take to close what is open once Close has come: less than the client waits for it."""


class Outbox:
    """What goes to the parent. `put` and `publish` never block; a slow reader delays only the sender thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._events: deque[Event] = deque()
        self._snapshot: Snapshot | None = None
        self._changed = threading.Condition()
        self._repeat: Event | None = None
        self._is_sending = False
        threading.Thread(target=self._send_all, name="sender", daemon=True).start()

    def put(self, event: Event) -> None:
        """Queues an event behind the others. One that cannot be pickled becomes a Failed of its request."""
        with self._changed:
            self._repeat = event if _is_unfinished(event) else None
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
                except Exception as error:  # noqa: BLE001 - what cannot be pickled must not silence the engine
                    traceback.print_exc()
                    self.put(failure_of(getattr(message, "request_id", None), error, is_fatal=False))


def _is_unfinished(event: Event) -> bool:
    """Whether more of the kind is to come, however long the library or one layer takes."""
    if isinstance(event, PrefillProgress):
        return event.done_tok < event.total_tok
    return isinstance(event, LoadProgress | TaskProgress)


class Inbox:
    """What comes from the parent: queued commands, and the flags that act at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.commands: queue.Queue[Command] = queue.Queue()
        self._num_received = 0
        self._num_messages = 0
        """Received, cancels included."""
        self._set_mode: tuple[int, str] | None = None
        """The last SetMode received: its number among all commands, and the mode."""
        self._load_numbers: deque[int] = deque()
        """The numbers of the loads that were received and not yet taken up."""
        self._load_number = 0
        self.is_closing = False
        self._waiting: set[int] = set()
        """Requests received and not yet taken up."""
        self._cancelled: set[int] = set()
        """Those of them that are not to be begun."""
        self._num_waiting = 0
        self._is_next_cancelled = False
        self._current: int | None = None
        self._is_busy = self._is_current_cancelled = False
        self._num_questions = 0
        """Submits received and not yet taken up."""
        self._gives_way = False
        """The running command is interrupted for them."""
        self.is_importing = True
        """Nothing is there yet that would have to be closed."""
        self._is_done = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._receive_all, name="control", daemon=True).start()

    def begin(self, command: Command) -> None:
        """A command is taken up; it may have been cancelled while it waited."""
        with self._lock:
            self._current, self._is_busy = getattr(command, "request_id", None), True
            self._is_current_cancelled = self._current in self._cancelled
            if self._current is not None:
                self._waiting.discard(self._current)
            self._num_questions -= isinstance(command, Submit)
            self._gives_way = isinstance(command, BuildProfile)
            if isinstance(command, Load):
                self._load_number = self._load_numbers.popleft()
            if _can_be_cancelled(command):
                self._num_waiting -= 1
                self._is_current_cancelled |= self._is_next_cancelled
                self._is_next_cancelled = False

    def pause(self, command: Command) -> bool:
        """Ends a command that was interrupted for a question, to be begun again, or cancelled meanwhile. False, and
        nothing changes: it was cancelled."""
        with self._lock:
            if not self._gives_way or self._is_current_cancelled or self.is_closing:
                return False
            request_id = getattr(command, "request_id", None)
            if request_id is not None:
                self._waiting.add(request_id)
            self._num_waiting += _can_be_cancelled(command)
            self._is_busy, self._gives_way, self._current = False, False, None
            return True

    def end(self) -> None:
        """The command that was begun last is through."""
        with self._lock:
            self._cancelled.discard(self._current)
            self._is_busy, self._gives_way, self._current = False, False, None

    def close(self) -> None:
        """The worker is through: what was to be closed is closed."""
        self._is_done.set()

    def is_cancelled(self) -> bool:
        """Whether the running command should stop, for good or for a question."""
        return self._is_current_cancelled or self.is_closing or (self._gives_way and self._num_questions > 0)

    def newcomers(self) -> Callable[[], bool]:
        """Tells whether a command waits, or anything has come since this call: what is done unasked ends then."""
        seen = self._num_messages
        return lambda: self._num_messages != seen or self.is_closing or not self.commands.empty()

    def mode_after(self, mode: str) -> str:
        """The mode that holds now, where the load taken up last asked for `mode`: what was set after that load was
        sent, or `mode` itself."""
        last = self._set_mode
        return last[1] if last is not None and last[0] > self._load_number else mode

    def _receive_all(self) -> None:
        while True:
            try:
                command = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            except Exception:  # noqa: BLE001 - nothing that follows can be trusted; the parent is told of the end
                traceback.print_exc()
                os._exit(1)
            self._receive(command)

    def _receive(self, command: Command) -> None:
        self._num_messages += 1
        if isinstance(command, Cancel):
            with self._lock:
                is_current = self._is_busy and command.request_id in (None, self._current)
                self._is_current_cancelled |= is_current
                if command.request_id is None:
                    self._is_next_cancelled |= not is_current and self._num_waiting > 0
                elif command.request_id in self._waiting:
                    self._cancelled.add(command.request_id)
        elif isinstance(command, Close):
            self.is_closing = True
            self.commands.put(command)
            if not self.is_importing:
                self._is_done.wait(_CLOSE_S)
            os._exit(0)
        else:
            with self._lock:
                self._num_received += 1
                if isinstance(command, SetMode):
                    self._set_mode = (self._num_received, command.mode)
                elif isinstance(command, Load):
                    self._load_numbers.append(self._num_received)
                self._num_waiting += _can_be_cancelled(command)
                self._num_questions += isinstance(command, Submit)
                if (request_id := getattr(command, "request_id", None)) is not None:
                    self._waiting.add(request_id)
            self.commands.put(command)


def _can_be_cancelled(command: Command) -> bool:
    return not isinstance(command, SetMode | SetDomain | CountTokens)
