"""The engine's thread: takes up one command after the other; every failure becomes an event."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.api import (
    Bench,
    BenchOverhead,
    BuildProfile,
    Close,
    Command,
    CountTokens,
    DeleteProfile,
    Load,
    SetDomain,
    SetMode,
    SetStrategy,
    ShowProfile,
    Submit,
)
from engine.errors import ConfigError
from engine.events import (
    UNLOADED,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    TaskEnded,
    TaskProgress,
    TurnEnded,
)
from engine.process.failures import failure_of
from engine.process.tasks import Task, UnloadedTask, run_on, run_unloaded

if TYPE_CHECKING:
    from engine.commands.task_outcome import TaskOutcome
    from engine.process.mailboxes import Inbox, Outbox
    from engine.process.session import Session
    from engine.process.weights_watch import WeightsWatch


class Worker:
    """Runs in the main thread of the engine's process. What a model needs is imported here, not with this module."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._session: Session | None = None
        self._watch: WeightsWatch | None = None
        """Of the session's files."""
        self._paused: BuildProfile | None = None
        """Interrupted for questions; goes on once there are none."""

    def run(self) -> None:
        """Until Close."""
        self._import()
        self._inbox.is_importing = False
        while True:
            command = self._next()
            if isinstance(command, Close):
                break
            self._handle(command)
        self._unload()
        self._inbox.close()

    def _next(self) -> Command:
        """The next command, waited for; where none is there what was interrupted. The wait is used to fill slots."""
        if self._session is not None and self._paused is None:
            from engine.process.slot_filling import fill_slots

            fill_slots(self._session, self._inbox.newcomers())
        with contextlib.suppress(queue.Empty):
            return self._inbox.commands.get(block=self._paused is None)
        paused, self._paused = self._paused, None
        assert paused is not None, "only then the queue may be found empty"
        return paused

    def _import(self) -> None:
        """Imports, done while the user reads the menu. Not torch and the model library: they take 280 MB, and a model
        that does without them would have as many fewer experts in its budget."""
        try:
            import engine.process.session  # noqa: F401
        except Exception as error:  # noqa: BLE001 - told as an event
            traceback.print_exc()
            self._outbox.put(failure_of(None, error, is_fatal=True))
            self._outbox.flush()
            os._exit(1)

    def _handle(self, command: Command) -> None:
        from offload.errors import WaitCancelled

        request_id = getattr(command, "request_id", None)
        self._inbox.begin(command)
        try:
            self._dispatch(command)
        except WaitCancelled:
            if isinstance(command, BuildProfile) and self._inbox.pause(command):
                self._paused = command
                return
            self._outbox.put(
                Failed(
                    request_id, "Stopped", "Loading, or the task, was ended before it was complete.", "", is_fatal=False
                )
            )
        except Exception as error:  # noqa: BLE001 - told as an event, the engine goes on
            traceback.print_exc()
            self._outbox.put(failure_of(request_id, error, is_fatal=False))
        finally:
            if isinstance(command, BuildProfile) and self._session is not None and self._paused is None:
                self._session.profiles.drop_begun()
            self._inbox.end()

    def _dispatch(self, command: Command) -> None:
        if isinstance(command, Load):
            self._load(command)
        elif isinstance(command, SetMode):
            self._set_mode(self._inbox.mode_after(command.mode))
        elif isinstance(command, Submit):
            self._unchanged().answer(command)
        elif isinstance(command, SetDomain):
            self._loaded().set_domain(command.domain)
        elif isinstance(command, SetStrategy):
            self._set_strategy(command.strategy)
        elif isinstance(command, CountTokens):
            self._loaded().count_tokens(command)
        elif isinstance(command, Task):
            outcome = self._run_task(command)
            self._outbox.put(TaskEnded(command.request_id, outcome.is_ok, outcome.report, outcome.lines))
            if isinstance(command, (BuildProfile, DeleteProfile)) and self._session is not None:
                self._session.tell_profiles()

    def _load(self, command: Load) -> None:
        """Replaces the session. Where that fails there is none."""
        from engine.process.session import Session
        from engine.process.weights_watch import WeightsWatch

        self._unload()
        _give_memory_back()
        inbox, outbox, config = self._inbox, self._outbox, command.config
        outbox.put(LoadProgress("reading the checkpoint", 0, 0, ""))
        self._session = Session(
            config, self._emit, outbox.publish, inbox.is_cancelled, lambda: inbox.mode_after(config.mode)
        )
        try:
            self._set_mode(inbox.mode_after(config.mode))
            self._session.publish()
            ready = self._session.ready()
            self._watch = WeightsWatch(self._session.engine.loaded.expert_files())
        except BaseException:
            self._unload()
            raise
        outbox.put(replace(ready, request_id=command.request_id))
        self._session.tell_profiles()

    def _unload(self) -> None:
        """Closes the session, if there is one. A session that cannot be closed is let go of all the same."""
        session, self._session, self._watch = self._session, None, None
        if session is None:
            return
        try:
            session.close()
        except Exception:  # noqa: BLE001 - what is broken must not keep the next model from loading
            traceback.print_exc()

    def _emit(self, event: Event) -> None:
        """What the session tells. That the files were changed during an answer is said before its end."""
        if isinstance(event, TurnEnded) and self._watch is not None and (notice := self._watch.notice()) is not None:
            self._outbox.put(notice)
        self._outbox.put(event)

    def _unchanged(self) -> Session:
        """The session, whose files are as they were loaded. Raises ConfigError without one, CheckpointError."""
        session = self._loaded()
        if self._watch is not None:
            self._watch.require_unchanged()
        return session

    def _set_mode(self, mode: str) -> None:
        """A change outside an answer; inside one the session has seen it already."""
        if self._session is None:
            self._outbox.put(ModeChanged(mode, None, None))
        elif self._session.mode != mode:
            self._session.set_mode(mode)

    def _set_strategy(self, strategy: str) -> None:
        session = self._unchanged()
        try:
            session.set_strategy(strategy)
        finally:
            if not session.engine.is_whole:
                self._give_up("after its strategy was changed")

    def _loaded(self) -> Session:
        if self._session is None:
            raise ConfigError("No model is loaded.", "Load one first.")
        return self._session

    def _run_task(self, command: Task) -> TaskOutcome:
        def progress(stage: str, done: int, total: int) -> None:
            self._outbox.put(TaskProgress(command.request_id, stage, done, total))

        is_cancelled = self._inbox.is_cancelled
        if isinstance(command, UnloadedTask):
            return run_unloaded(command, progress, is_cancelled)
        session = self._loaded() if isinstance(command, ShowProfile | DeleteProfile) else self._unchanged()
        session.begin_task()
        try:
            return run_on(session, command, progress, is_cancelled)
        finally:
            self._end_task(session, command)

    def _end_task(self, session: Session, command: Task) -> None:
        """The session goes on after a task, or there is none any more: a task that rebuilds the experts may fail half
        way. Raises nothing."""
        is_rebuilt = isinstance(command, Bench) and not isinstance(command, BenchOverhead)
        try:
            if session.engine.is_whole:
                session.end_task(is_rebuilt)
                return
        except Exception:  # noqa: BLE001 - told below
            traceback.print_exc()
        self._give_up("after the task")

    def _give_up(self, when: str) -> None:
        self._unload()
        message = f"The model could not be put back as it was {when}, and is not loaded any more."
        self._outbox.put(Failed(None, "No model is loaded", message, "Load it again.", is_fatal=False, kind=UNLOADED))


def _give_memory_back() -> None:
    """A model is full of cycles, and the allocator keeps what was freed: the next one's budget would count both."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # not every C library has it
            ctypes.CDLL(None).malloc_trim(0)
