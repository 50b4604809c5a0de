"""Runs an engine for commands without a screen: start, load, events, interrupt, close."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from app.cli.output.screen import HeadlessScreen
from app.engine_link.bridge import EngineLink, make_link
from app.process.instance import InstanceLock
from app.storage.paths import AppPaths, make_private
from engine.api import Load
from engine.config import EngineConfig
from engine.errors import EngineDiedError, MoeChatError
from engine.events import EngineReady, Event, Failed

LOAD_ID = 0
"""The request id of a load; requests to the loaded model have higher ones."""

_POLL_S = 0.1
_STOP_WAIT_S = 0.6
"""Seconds that a stopped answer may take to end before the engine is closed; the program then ends within two."""
PATIENT_WAIT_S = 3.0
"""The same where the program continues afterwards; a second ctrl+c ends it at once."""


class InputInterrupted(Exception):
    """The user pressed ctrl+c while something was read from the terminal."""


class Interrupt:
    """Handles ctrl+c: the first one stops the answer or the line of input, the second one ends the program."""

    def __init__(self, *, wait_s: float = _STOP_WAIT_S) -> None:
        """`wait_s`: seconds that a stopped answer may take to end."""
        self.since: float | None = None
        self._wait_s = wait_s
        self._is_reading = self._is_pending = False
        self._previous: Callable[[int, FrameType | None], object] | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGINT."""
        if self.since is None:
            self.since = time.monotonic()
            if self._is_reading:
                raise InputInterrupted
            self._is_pending = True
        elif self._previous is not None:
            self._previous(number, frame)
        else:
            raise KeyboardInterrupt

    def read(self, reader: Callable[[], str | None]) -> str | None:
        """What `reader` returns. Raises InputInterrupted at the first ctrl+c, also at one that came just before; the
        handler raises it nowhere else, so that it is always caught."""
        try:
            self._is_reading = True
            if self._is_pending:
                self._is_pending = False
                raise InputInterrupted
            return reader()
        finally:
            self._is_reading = False

    @property
    def is_overdue(self) -> bool:
        """`wait_s` has passed since ctrl+c."""
        return self.since is not None and time.monotonic() - self.since > self._wait_s

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT inside the block, unless the process ignores it."""
        previous = signal.getsignal(signal.SIGINT)
        if previous is signal.SIG_IGN:
            yield
            return
        self._previous = previous if callable(previous) else None
        signal.signal(signal.SIGINT, self.handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


class EngineFailure(MoeChatError):
    """A `Failed` event as an exception."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message, failure.hint)
        self.title = failure.title
        self.failure = failure


@contextmanager
def started_engine(paths: AppPaths, screen: HeadlessScreen) -> Iterator[EngineLink]:
    """An engine process without a model; closed at the end of the block."""
    link = make_link(paths)
    try:
        link.start()
        yield link
    finally:
        link.close()
        screen.clear_progress()


@contextmanager
def counted_as_running(screen: HeadlessScreen) -> Iterator[None]:
    """Holds the instance lock inside the block, so that `clean` frees nothing in use; notes another instance."""
    paths = AppPaths.from_environment()
    lock = InstanceLock(paths.instance_lock)
    if note := lock.acquire():
        screen.note(note)
    try:
        yield
    finally:
        lock.release()
        make_private(paths.data_dir)


@contextmanager
def running_engine(config: EngineConfig, screen: HeadlessScreen) -> Iterator[tuple[EngineLink, EngineReady]]:
    """An engine with its model loaded; closed at the end of the block. Raises EngineFailure."""
    with started_engine(AppPaths.from_environment(), screen) as link:
        link.send(Load(config, LOAD_ID))
        for event in events_of(link, LOAD_ID):
            screen.event(event)
            if isinstance(event, EngineReady):
                yield link, event
                return
            if isinstance(event, Failed):
                raise EngineFailure(event)


def is_of(event: Event, request_id: int) -> bool:
    """Whether an event has this request id, or none."""
    return getattr(event, "request_id", None) in (None, request_id)


def events_of(link: EngineLink, request_id: int) -> Iterator[Event]:
    """Events of a request and those without a request, as they arrive; never ends by itself."""
    while True:
        event = link.wait_event(_POLL_S)
        if event is not None and is_of(event, request_id):
            yield event


def events_until_stopped(link: EngineLink, interrupt: Interrupt, on_interrupt: Callable[[], None]) -> Iterator[Event]:
    """Events as they arrive. After ctrl+c `on_interrupt` is called once, and events follow until it is overdue."""
    is_told = False
    while not interrupt.is_overdue:
        event = link.wait_event(_POLL_S)
        if event is not None:
            yield event
        if interrupt.since is not None and not is_told:
            is_told = True
            with contextlib.suppress(EngineDiedError):  # an event tells its end
                on_interrupt()
