"""All that the panels remember. It watches every state, whether or not a panel is on screen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from app.telemetry.event_log import EventLog
from app.telemetry.expert_use import ExpertUse
from app.telemetry.outcomes import OutcomeHistory
from engine.events import Counters, EngineReady, Event, Snapshot

MAX_SAMPLES = 128


class PanelHistory:
    """Fed with events and states in their order; states seen before are passed over."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.log = EventLog(clock)
        self.ready: EngineReady | None = None
        self._start()

    def _start(self) -> None:
        self.snapshot: Snapshot | None = None
        """The last state seen."""
        self.outcomes = OutcomeHistory()
        self.use = ExpertUse()
        self.layer_outcomes: deque[tuple[tuple[int, int], ...]] = deque(maxlen=MAX_SAMPLES)
        """(hits, routed) of every layer since load, one entry a sample in which something was routed."""
        self._layers_before: tuple[Counters, ...] = ()
        """The layers' counters when the answer began."""
        self.link_bytes_per_s: deque[float | None] = deque(maxlen=MAX_SAMPLES)

    def note(self, happened: list[Event]) -> None:
        """Take in the engine's events."""
        self.log.note(happened)
        for event in happened:
            if isinstance(event, EngineReady):
                self.ready = event
                self._start()

    def follow(self, ready: EngineReady) -> None:
        """Take in what is loaded, if it is news. The same model under another strategy is no load: the figures begin
        again, and nothing is logged."""
        if self.ready is None or replace(self.ready, effective=ready.effective) != ready:
            self.note([ready])
        elif self.ready is not ready:
            self.ready = ready
            self._start()

    def see(self, snapshot: Snapshot) -> None:
        """Take in a state."""
        before, self.snapshot = self.snapshot, snapshot
        if not snapshot.turn_counters.routed:
            self._layers_before = snapshot.layer_counters
        elif before is not None and snapshot.turn_counters.routed < before.turn_counters.routed:
            self._layers_before = before.layer_counters
        if before is not None and before.sequence == snapshot.sequence and before.phase == snapshot.phase:
            return
        self.outcomes.see(snapshot)
        self.use.see(snapshot)
        self.log.see(snapshot)
        if snapshot.phase != "idle":
            self.link_bytes_per_s.append(snapshot.link.bytes_per_s)
        served = tuple((layer.hits, layer.routed) for layer in snapshot.layer_counters)
        if not self.layer_outcomes or self.layer_outcomes[-1] != served:
            self.layer_outcomes.append(served)

    def layers_of_answer(self, snapshot: Snapshot) -> tuple[Counters, ...]:
        """What was counted in each layer in this answer; since load where its beginning has not been seen."""
        layers, before = snapshot.layer_counters, self._layers_before
        if len(before) != len(layers):  # of another model
            return layers
        return tuple(now - then for now, then in zip(layers, before, strict=True))

    def layer_hit_rates(self, layer: int) -> list[float | None]:
        """Hits over routed of one layer between the samples, oldest first; None where nothing was routed in it."""
        rates: list[float | None] = []
        samples = list(self.layer_outcomes)
        for earlier, later in pairwise(samples):
            if layer >= min(len(earlier), len(later)):
                continue
            hits, routed = (later[layer][part] - earlier[layer][part] for part in (0, 1))
            rates.append(hits / routed if routed > 0 else None)
        return rates
