"""The lines of the EVENTS panel, made from engine events and from differences between snapshots."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from app.formatting import figures
from app.formatting.sanitise import visible
from app.storage.answer_record import ending
from engine.events import (
    HOST,
    STOP,
    DomainSet,
    EngineReady,
    Event,
    Failed,
    ModeChanged,
    PrefillProgress,
    Snapshot,
    StrategySet,
    TaskEnded,
    TurnEnded,
)

MAX_LINES = 300

_BURST_SHARE = 0.1
"""Evictions between two samples that are worth a line, as a share of the experts on the device."""


class Kind(Enum):
    """What a line is about."""

    READY = "ready"
    MODE = "mode"
    DOMAIN = "domain"
    PROMPT = "prompt"
    ANSWER = "answer"
    LATE = "late"
    EVICTIONS = "evictions"
    NOTICE = "notice"
    ERROR = "error"


_COUNTING = (Kind.LATE, Kind.EVICTIONS)


class LogLine(NamedTuple):
    """One line."""

    at_s: float
    """Seconds since the epoch; of a counting line, of its last count."""
    kind: Kind
    text: str

    @property
    def clock(self) -> str:
        """`14:03:59`, local time."""
        return time.strftime("%H:%M:%S", time.localtime(self.at_s))


class _Tally(NamedTuple):
    """Late experts and evictions of one layer since load."""

    late: int
    evictions: int
    routed: int


class EventLog:
    """The last lines, oldest first. Late experts and evictions have one counting line each: it is updated until a
    line of another kind follows."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._clock = clock
        self._tallies: tuple[_Tally, ...] = ()
        self._counted_from: dict[Kind, tuple[_Tally, ...]] = {}
        self._largest_burst = 0
        self._reading: int | None = None

    def note(self, happened: list[Event]) -> None:
        """Append the lines of these events."""
        for event in happened:
            for kind, text in self._told(event):
                self._add(kind, text)

    def see(self, snapshot: Snapshot) -> None:
        """Append or update lines for what the counters of this snapshot changed."""
        now = tuple(_Tally(layer.late, layer.evictions, layer.routed) for layer in snapshot.layer_counters)
        before, self._tallies = self._tallies, now
        if len(before) != len(now) or sum(t.routed for t in now) < sum(t.routed for t in before):
            self._counted_from.clear()
            return
        if snapshot.phase == "decode" and any(new.late != old.late for new, old in zip(now, before, strict=True)):
            self._see_late(before, now, snapshot.layer_numbers)
        burst = sum(t.evictions for t in now) - sum(t.evictions for t in before)
        num_held = sum(len(codes) - codes.count(HOST) for codes in snapshot.residency)
        if burst and burst >= _BURST_SHARE * num_held:
            self._see_burst(before, now, burst)

    def _see_late(self, before: tuple[_Tally, ...], now: tuple[_Tally, ...], numbers: tuple[int, ...]) -> None:
        start = self._count_on(Kind.LATE, before)
        late = [new.late - old.late for new, old in zip(now, start, strict=True)]
        routed = sum(new.routed - old.routed for new, old in zip(now, start, strict=True))
        worst = max(range(len(late)), key=late.__getitem__)
        self._add(Kind.LATE, f"late {figures.of(sum(late), routed)}, most in L{numbers[worst]}")

    def _see_burst(self, before: tuple[_Tally, ...], now: tuple[_Tally, ...], burst: int) -> None:
        start = self._count_on(Kind.EVICTIONS, before)
        self._largest_burst = max(burst, 0 if start is before else self._largest_burst)
        evicted = sum(t.evictions for t in now) - sum(t.evictions for t in start)
        self._add(Kind.EVICTIONS, f"evicted {evicted}, {self._largest_burst} in a burst")

    def _count_on(self, kind: Kind, before: tuple[_Tally, ...]) -> tuple[_Tally, ...]:
        """The counters that the line of that kind counts from; removes the line, which the caller appends again."""
        for line in reversed(self.lines):
            if line.kind not in _COUNTING:
                break
            if line.kind is kind and kind in self._counted_from:
                self.lines.remove(line)
                return self._counted_from[kind]
        self._counted_from[kind] = before
        return before

    def _add(self, kind: Kind, text: str) -> None:
        self.lines.append(LogLine(self._clock(), kind, visible(text)))

    def _told(self, event: Event) -> list[tuple[Kind, str]]:
        match event:
            case EngineReady():
                loaded = f"{event.model_name}, loaded in {figures.milliseconds(1000 * event.load_s)}"
                return [(Kind.READY, loaded), *((Kind.NOTICE, notice) for notice in event.notices)]
            case ModeChanged(mode, _, at_tok):
                return [(Kind.MODE, mode.upper() + (f" from token {at_tok}" if at_tok is not None else ""))]
            case StrategySet(strategy):
                return [(Kind.MODE, f"strategy {strategy}, the expert cache is empty")]
            case DomainSet(domain, num_warmed):
                warmed = "no profile" if num_warmed is None else f"{num_warmed} experts loaded"
                return [(Kind.DOMAIN, f"{domain}: {warmed}")]
            case PrefillProgress(request_id) if request_id != self._reading:
                self._reading = request_id
                return self._told_prompt(event)
            case TurnEnded():
                return self._told_end(event)
            case TaskEnded(_, is_ok):
                return [(Kind.NOTICE if is_ok else Kind.ERROR, "task done" if is_ok else "task failed")]
            case Failed():
                return [(Kind.ERROR, event.title)]
            case _:
                return []

    def _told_prompt(self, event: PrefillProgress) -> list[tuple[Kind, str]]:
        told = [(Kind.PROMPT, f"prompt of {event.total_tok} tok, {event.reused_tok} cached")]
        if event.note:
            told.append((Kind.NOTICE, event.note))
        if event.left_out_messages:
            told.append((Kind.NOTICE, f"left out the {event.left_out_messages} oldest messages"))
        return told

    def _told_end(self, event: TurnEnded) -> list[tuple[Kind, str]]:
        stats, told = event.stats, []
        if stats.prefill_path:
            told.append((Kind.PROMPT, f"prefill: {stats.prefill_path}"))
        tpot, hit = figures.milliseconds(stats.tpot_ms), figures.percent(stats.counters.hit_rate)
        ended = "" if event.reason == STOP else f"{ending(event.reason)}: "
        told.append((Kind.ANSWER, f"{ended}{stats.new_tok} tok, {tpot}/tok, {stats.label}, hit {hit}"))
        if event.failure is not None:
            told.append((Kind.ERROR, event.failure.title))
        return told
