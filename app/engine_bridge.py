"""The one link between the engine's process and whatever shows it.

The bridge owns the process, drains its events on the caller's clock, and keeps what a widget that appears
later has missed: how far loading is, what is ready, what failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Protocol

from app.profile_book import ProfileBook
from engine.api import Command, Load, SetMode
from engine.config import APPROX, EXACT, EngineConfig
from engine.events import EngineReady, Event, Failed, LoadProgress, ModeChanged, Snapshot


class EngineLink(Protocol):
    """The parent's side of the engine's process."""

    def start(self) -> None:
        """Spawn the process. Call from the main thread: the child dies with the thread that made it."""

    def send(self, command: Command) -> None:
        """Hand a command over; never waits for its effect."""

    def drain(self) -> list[Event]:
        """Events since the last call, in order; never blocks. A process that died ends them with a fatal Failed."""

    def wait_event(self, timeout: float | None) -> Event | None:
        """The next event, or None when `timeout` seconds have passed."""

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest state; None before the first."""

    @property
    def is_alive(self) -> bool:
        """The process runs."""

    @property
    def exit_note(self) -> str:
        """Why the process ended."""

    def close(self) -> None:
        """End the process; it is gone within two seconds."""


class EngineState(Enum):
    """Where the engine is."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    LOAD_FAILED = "load failed"
    """The process lives and has no model."""
    DEAD = "dead"


class EngineBridge:
    """The engine as the app sees it. `make_link` gives a fresh, unstarted link for every start."""

    def __init__(self, make_link: Callable[[], EngineLink], config: EngineConfig) -> None:
        self.config = config
        self.state = EngineState.STARTING
        self.progress: LoadProgress | None = None
        self.ready: EngineReady | None = None
        self.failure: Failed | None = None
        self.mode = config.mode
        self.wanted_mode: str | None = None
        """The mode asked for and not yet confirmed."""
        self._make_link = make_link
        self._link: EngineLink | None = None
        self._last_request_id = 0
        self.profiles = ProfileBook(self.send, self.next_request_id)

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest state; None before the first."""
        return self._link.snapshot if self._link else None

    @property
    def is_ready(self) -> bool:
        """The model is loaded."""
        return self.state is EngineState.READY

    @property
    def is_down(self) -> bool:
        """Nothing will be answered until the engine is started anew."""
        return self.state in (EngineState.DEAD, EngineState.LOAD_FAILED)

    def start(self) -> None:
        """Spawn the process and have it load the model."""
        self.state, self.progress, self.ready, self.failure = EngineState.STARTING, None, None, None
        self.profiles.forget()
        self._link = self._make_link()
        self._link.start()
        self.send(Load(self.config))

    def restart(self) -> None:
        """Replace the process by a new one, in the mode the old one had."""
        self.close()
        self.config = replace(self.config, mode=self.wanted_mode or self.mode)
        self.wanted_mode = None
        self.start()

    def send(self, command: Command) -> None:
        """Pass a command on; one to a dead engine is dropped, its death is told by an event."""
        if self._link is not None and self._link.is_alive:
            self._link.send(command)

    def toggle_mode(self) -> str:
        """Ask for the other mode; returns it. It holds once ModeChanged says so."""
        other = EXACT if (self.wanted_mode or self.mode) == APPROX else APPROX
        self.wanted_mode = other
        self.send(SetMode(other))
        return other

    def next_request_id(self) -> int:
        """A number no request has had."""
        self._last_request_id += 1
        return self._last_request_id

    def poll(self) -> list[Event]:
        """What happened since the last call, already taken note of here."""
        events = self._link.drain() if self._link else []
        for event in events:
            self._note(event)
        return events

    def close(self) -> None:
        """End the process."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _note(self, event: Event) -> None:
        self.profiles.note(event)
        if isinstance(event, LoadProgress):
            self.state, self.progress = EngineState.LOADING, event
        elif isinstance(event, EngineReady):
            self.state, self.ready, self.failure = EngineState.READY, event, None
        elif isinstance(event, ModeChanged):
            self.mode = event.mode
            if self.wanted_mode == event.mode:
                self.wanted_mode = None
        elif isinstance(event, Failed) and (event.is_fatal or event.request_id is None):
            self.failure = event
            if event.is_fatal:
                self.state = EngineState.DEAD
                self.profiles.forget()
            elif not self.is_ready:
                self.state = EngineState.LOAD_FAILED
