"""Passes the engine's events and states to the screens that show them, at a limited rate."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from textual.app import App

from app.engine_link.bridge import EngineBridge
from engine.events import Event, Snapshot

_IDLE_SNAPSHOT_S = 1.0
"""Seconds between updates while the engine is idle or no panel is visible."""

_QUIET_PHASES = ("idle",)


@runtime_checkable
class EngineWatcher(Protocol):
    """A screen that shows what the engine does."""

    async def engine_events(self, happened: list[Event]) -> None:
        """What happened since the last beat; may be nothing."""

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """The engine's state, when it is worth showing."""


class EngineWatch:
    """Tells every watching screen of an app."""

    def __init__(self, app: App[None], bridge: EngineBridge) -> None:
        self._app, self._bridge = app, bridge
        self._snapshot_at = 0.0
        self._shown_sequence = -1

    async def tell(self, happened: list[Event], snapshot_s: float) -> None:
        """Tell what happened, and the engine's state every `snapshot_s` while something does."""
        snapshot, now = self._bridge.snapshot, time.monotonic()
        is_quiet = snapshot is None or snapshot.phase in _QUIET_PHASES or not self._app.app_focus
        is_due = now - self._snapshot_at >= (_IDLE_SNAPSHOT_S if is_quiet and not happened else snapshot_s)
        for screen in self._app.screen_stack:
            if not isinstance(screen, EngineWatcher) or not screen.is_mounted:
                continue
            await screen.engine_events(happened)
            if not self._app.is_running:  # the app is being left
                return
            if snapshot is not None and is_due and snapshot.sequence != self._shown_sequence:
                screen.engine_snapshot(snapshot)
        if snapshot is not None and is_due:
            self._snapshot_at, self._shown_sequence = now, snapshot.sequence
