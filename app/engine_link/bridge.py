"""The one link between the engine's process and whatever shows it.

The bridge owns the process, drains its events on the caller's clock, and keeps what a widget that appears
later has missed: how far loading is, what is ready, what failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Protocol

from app.domains.profile_book import ProfileBook
from app.formatting.progress_line import Pace
from app.storage.paths import AppPaths
from engine.api import Cancel, Command, Load, SetMode, SetStrategy
from engine.config import APPROX, EXACT, EngineConfig
from engine.errors import EngineDiedError
from engine.events import (
    UNLOADED,
    EngineReady,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    PrefillProgress,
    Snapshot,
    StrategySet,
)


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

    def begin_close(self) -> None:
        """Ask the process to end; never waits."""

    def close(self) -> None:
        """End the process; it is gone within a second."""


class EngineState(Enum):
    """Where the engine is."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    LOAD_FAILED = "load failed"
    """The process lives and has no model."""
    DEAD = "dead"


def make_link(paths: AppPaths) -> EngineLink:
    """A fresh, unstarted client that logs to the engine's log: the only place that names the real client."""
    from engine.client import EngineClient

    return EngineClient(paths.engine_log)


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
        """The mode asked for and not yet confirmed; without a process, the next one starts in it."""
        self.is_stopping_load = False
        self.pace = Pace()
        """How fast the present stage of loading goes."""
        self.prefill_pace = Pace()
        """How fast the present prompt is read."""
        self._prefill_id: int | None = None
        self._load_id: int | None = None
        """The load that was asked for last, until it has ended."""
        self._replaced_loads: set[int] = set()
        """Loads after which another one was asked for."""
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
        """Nothing will be answered until the engine is started again."""
        return self.state in (EngineState.DEAD, EngineState.LOAD_FAILED)

    @property
    def is_loading(self) -> bool:
        """A model is being loaded, or will be once the process can."""
        return self._load_id is not None

    def start(self, *, loads: bool = True) -> None:
        """Spawn the process and have it load the model; without `loads` it only imports, until `load` is called."""
        self._forget_model()
        self.state, self._load_id = EngineState.STARTING, None
        self._link = self._make_link()
        try:
            self._link.start()
        except EngineDiedError as error:
            self._note_failure(Failed(None, error.title, error.message, error.hint, is_fatal=True))
            return
        if loads:
            self._load()

    def load(self, config: EngineConfig) -> None:
        """Load a model with other settings; what is running is stopped. The mode stays."""
        self.config = replace(config, mode=self.coming_mode)
        if self._link is None or not self._link.is_alive:
            self.restart()
            return
        if self.is_ready or self.is_loading:
            self.send(Cancel())
        self._load()

    def stop_loading(self) -> bool:
        """Stop the load; False when there is none to stop. Afterwards the engine lives without a model."""
        if not self.is_loading or self.is_stopping_load:
            return False
        self.is_stopping_load = True
        self.send(Cancel())
        return True

    def restart(self) -> None:
        """Load again; where the process is gone, or a model is loaded, by a new process. The mode stays."""
        self.config = replace(self.config, mode=self.coming_mode)
        if self.state is EngineState.LOAD_FAILED and self._link is not None and self._link.is_alive:
            self._load()
            return
        self.close()
        self.mode, self.wanted_mode = self.config.mode, None
        self.start()

    def _load(self) -> None:
        self._forget_model()
        if self._load_id is not None:
            self._replaced_loads.add(self._load_id)
        self.state, self._load_id = EngineState.LOADING, self.next_request_id()
        self.send(Load(self.config, self._load_id))

    def _forget_model(self) -> None:
        self.progress, self.ready, self.failure, self.pace = None, None, None, Pace()
        self.is_stopping_load = False
        self.profiles.forget()

    def send(self, command: Command) -> None:
        """Pass a command on; one to a dead engine is dropped, its death is told by an event."""
        if self._link is not None and self._link.is_alive:
            with contextlib.suppress(EngineDiedError):  # it died since
                self._link.send(command)

    @property
    def coming_mode(self) -> str:
        """The mode once everything asked for is done."""
        return self.wanted_mode or self.mode

    @property
    def other_mode(self) -> str:
        """What the coming mode is not."""
        return EXACT if self.coming_mode == APPROX else APPROX

    def ask_strategy(self, strategy: str) -> None:
        """Run the model under a strategy as it is, without options that replace its parts; it holds once StrategySet
        says so, or with the next load."""
        if strategy != self.config.strategy:
            self.config = self.config.with_strategy(strategy)
            self.send(SetStrategy(strategy))

    def ask_mode(self, mode: str) -> None:
        """Ask for a mode, unless it comes anyway. It holds once ModeChanged says so, or the engine restarts."""
        if mode != self.coming_mode:
            self.wanted_mode = mode
            self.send(SetMode(mode))

    def next_request_id(self) -> int:
        """A number no request has had."""
        self._last_request_id += 1
        return self._last_request_id

    def poll(self) -> list[Event]:
        """What happened since the last call, already taken note of here. The end of a load that another one replaced
        is no news."""
        events = self._link.drain() if self._link else []
        told = [self._as_load_end(event) for event in events]
        return [event for event in told if event is not None and self._note(event)]

    def begin_close(self) -> None:
        """Ask the process to end, while something else is done that comes before `close`."""
        if self._link is not None:
            self._link.begin_close()

    def close(self) -> None:
        """End the process."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _as_load_end(self, event: Event) -> Event | None:
        """The event; the failure of a load as one of the engine; None for the end of a load that was replaced."""
        if not isinstance(event, EngineReady | Failed):
            return event
        is_fatal = isinstance(event, Failed) and event.is_fatal
        if event.request_id in self._replaced_loads and not is_fatal:
            return None
        if isinstance(event, EngineReady):
            self._load_id = None
        elif is_fatal or event.request_id == self._load_id or (event.request_id is None and event.kind != UNLOADED):
            event, self._load_id = replace(event, request_id=None), None
        return event

    def _note(self, event: Event) -> bool:
        """Take in an event; False: it is no news."""
        self.profiles.note(event)
        match event:
            case LoadProgress():
                self._note_progress(event)
            case PrefillProgress():
                self._note_prefill(event)
            case EngineReady():
                self.state, self.ready, self.failure = EngineState.READY, event, None
            case StrategySet(strategy, effective) if self.ready is not None:
                self.ready = replace(self.ready, effective=effective)
                if strategy != self.config.strategy:
                    self.config = replace(self.config, strategy=strategy)
            case ModeChanged(mode):
                self.mode = mode
                self.wanted_mode = None if self.wanted_mode == mode else self.wanted_mode
            case Failed() if event.is_fatal or event.request_id is None:
                self._note_failure(event)
            case _:
                pass
        return True

    def _note_progress(self, event: LoadProgress) -> None:
        if self.progress is None or (event.stage, event.total) != (self.progress.stage, self.progress.total):
            self.pace = Pace()
        self.pace.note(event.done, event.total)
        self.progress = event

    def _note_prefill(self, event: PrefillProgress) -> None:
        if event.request_id != self._prefill_id:
            self._prefill_id, self.prefill_pace = event.request_id, Pace()
        self.prefill_pace.note(event.done_tok, event.total_tok)

    def _note_failure(self, failure: Failed) -> None:
        self.failure, self.is_stopping_load = failure, False
        if failure.is_fatal:
            self.state = EngineState.DEAD
            self.profiles.forget()
        elif failure.kind == UNLOADED or not self.is_ready:
            self.state, self.ready = EngineState.LOAD_FAILED, None
