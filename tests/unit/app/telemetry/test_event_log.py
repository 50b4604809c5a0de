"""The log of events: what is worth a line, in words, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.telemetry.event_log import MAX_LINES, EventLog, Kind
from engine.events import (
    DomainSet,
    Event,
    Failed,
    ModeChanged,
    PrefillProgress,
    Snapshot,
    TextDelta,
    TurnEnded,
)
from offload.counters import Counters
from tests.functional.app.fake_engine import READY, snapshot, stats


def _texts(log: EventLog) -> list[str]:
    return [line.text for line in log.lines]


def _state(*layers: Counters, phase: str = "decode") -> Snapshot:
    return replace(snapshot(1, phase=phase, num_layers=len(layers)), layer_counters=layers)


@pytest.mark.parametrize(
    ("event", "texts"),
    [
        (READY, ["SmolLM2-135M-MoE demo, loaded in 2.4 s", READY.notices[0]]),
        (ModeChanged("approx", 1, 41), ["APPROX from token 41"]),
        (ModeChanged("exact", None, None), ["EXACT"]),
        (DomainSet("maths", 62, 0.9), ["maths: 62 experts loaded"]),
        (DomainSet("maths", None, None), ["maths: no profile"]),
        (PrefillProgress(1, 0, 38, 12), ["prompt of 38 tok, 12 cached"]),
        (Failed(None, "The engine stopped", "It was killed.", "", is_fatal=True), ["The engine stopped"]),
        (TextDelta(1, "hello", 1), []),
    ],
)
def test_events_in_words(event: Event, texts: list[str]) -> None:
    log = EventLog()
    log.note([event])
    assert _texts(log) == texts


def test_an_answers_end_tells_how_prefill_ran_and_what_the_answer_cost() -> None:
    log = EventLog()
    log.note([TurnEnded(1, "stop", stats(40), "text")])
    assert _texts(log) == ["prefill: one expert at a time", "40 tok, 48 ms/tok, exact, hit 91 %"]


def test_a_prompt_is_told_once_and_says_what_was_left_out() -> None:
    log = EventLog()
    log.note([PrefillProgress(1, done, 38, 0, left_out_messages=4) for done in (0, 20, 38)])
    assert _texts(log) == ["prompt of 38 tok, 0 cached", "left out the 4 oldest messages"]


def test_late_experts_in_a_row_are_one_line_that_counts_on() -> None:
    log = EventLog()
    for late, routed in ((0, 20), (1, 40), (1, 60), (3, 80)):
        log.see(_state(Counters(routed=routed), Counters(routed=routed, late=late)))
    assert _texts(log) == ["late 3 of 120, most in L1"]
    log.note([ModeChanged("approx", None, None)])
    log.see(_state(Counters(routed=100), Counters(routed=100, late=4)))
    assert _texts(log)[-1] == "late 1 of 40, most in L1"


def test_a_burst_of_evictions_is_told_and_single_ones_are_not() -> None:
    log = EventLog()
    log.see(_state(Counters(routed=8)))
    log.see(_state(Counters(routed=16)))
    assert _texts(log) == []
    for evictions in (6, 7, 11):
        log.see(_state(Counters(routed=24, evictions=evictions), phase="prefill"))
    assert _texts(log) == ["evicted 11, 6 in a burst"]


def test_late_experts_and_evictions_in_turn_are_two_lines() -> None:
    log = EventLog()
    for step in range(6):
        log.see(_state(Counters(routed=40 * step, late=step // 2, evictions=5 * ((step + 1) // 2))))
    assert sorted(_texts(log)) == ["evicted 15, 5 in a burst", "late 2 of 120, most in L0"]


def test_counters_that_went_back_are_another_engines() -> None:
    log = EventLog()
    log.see(_state(Counters(routed=500, late=1)))
    log.see(_state(Counters(routed=8, late=2)))
    assert _texts(log) == []


def test_lines_carry_their_time_and_no_control_characters_and_are_bounded() -> None:
    log = EventLog(clock=lambda: 1_000.0)
    log.note([Failed(1, "bad \x1b[31m name", "", "", is_fatal=False)])
    assert log.lines[0].at_s == 1_000.0
    assert log.lines[0].kind is Kind.ERROR
    assert "\x1b" not in log.lines[0].text
    for _ in range(MAX_LINES + 10):
        log.note([DomainSet("maths", None, None)])
    assert len(log.lines) == MAX_LINES
