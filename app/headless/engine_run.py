"""An engine without a screen: started, loaded, listened to, interrupted, and ended whatever happens."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from app.engine_bridge import EngineLink
from app.engine_launch import make_link
from app.headless.screen import HeadlessScreen
from app.instance import InstanceLock
from app.paths import AppPaths
from engine.api import Load
from engine.config import EngineConfig
from engine.errors import MoeChatError
from engine.events import EngineReady, Event, Failed

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130

_POLL_S = 0.1
_STOP_WAIT_S = 3.0
"""How long a stopped answer may take to end before the engine is closed anyway."""


class Interrupt:
    """Whether the user pressed ctrl+c: once stops the answer, twice stops the program."""

    def __init__(self) -> None:
        self.since: float | None = None

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler of SIGINT."""
        if self.since is not None:
            raise KeyboardInterrupt
        self.since = time.monotonic()

    @property
    def is_overdue(self) -> bool:
        """The user has waited long enough for the answer to stop."""
        return self.since is not None and time.monotonic() - self.since > _STOP_WAIT_S

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT meanwhile."""
        previous = signal.signal(signal.SIGINT, self.handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


class EngineFailure(MoeChatError):
    """The engine said Failed: the same words, as an exception."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message, failure.hint)
        self.title = failure.title
        self.failure = failure


@contextmanager
def started_engine(paths: AppPaths, screen: HeadlessScreen) -> Iterator[EngineLink]:
    """An engine's process, with no model yet, closed at the end whatever happens."""
    link = make_link(paths)
    link.start()
    try:
        yield link
    finally:
        screen.clear_progress()
        link.close()


@contextmanager
def counted_as_running(screen: HeadlessScreen) -> Iterator[None]:
    """Whatever else starts meanwhile knows of this run, and frees nothing it needs; another that runs is told."""
    lock = InstanceLock(AppPaths.from_environment().instance_lock)
    if note := lock.acquire():
        screen.note(note)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def running_engine(
    config: EngineConfig, screen: HeadlessScreen, interrupt: Interrupt
) -> Iterator[tuple[EngineLink, EngineReady]]:
    """An engine with its model loaded, closed at the end whatever happens. Raises EngineFailure, KeyboardInterrupt."""
    with started_engine(AppPaths.from_environment(), screen) as link:
        link.send(Load(config))
        for event in events_of(link, interrupt):
            screen.event(event)
            if isinstance(event, EngineReady):
                yield link, event
                return
            if isinstance(event, Failed):
                raise EngineFailure(event)
        raise KeyboardInterrupt


def events_of(
    link: EngineLink, interrupt: Interrupt, on_interrupt: Callable[[], None] | None = None
) -> Iterator[Event]:
    """Events as they come. After ctrl+c: `on_interrupt` once and a while longer; without one, the end."""
    told = False
    while True:
        event = link.wait_event(_POLL_S)
        if event is not None:
            yield event
        if interrupt.since is not None:
            if on_interrupt is None or interrupt.is_overdue:
                return
            if not told:
                told = True
                on_interrupt()
