"""Rates and the time left, with gaps in the clock."""

from __future__ import annotations

from app.formatting.progress_line import Pace


def test_nothing_is_said_before_there_is_something_to_measure() -> None:
    pace = Pace()
    assert (pace.per_s, pace.left_s) == (None, None)
    pace.note(0, 100, now=0)
    pace.note(10, 100, now=0.1)
    assert pace.per_s is None


def test_the_rate_and_the_time_left() -> None:
    pace = Pace()
    for second in range(4):
        pace.note(10 * second, 100, now=second)
    assert (pace.per_s, pace.left_s) == (10, 7)


def test_a_total_that_is_not_known_has_no_time_left() -> None:
    pace = Pace()
    pace.note(0, 0, now=0)
    pace.note(10, 0, now=1)
    assert (pace.per_s, pace.left_s) == (10, None)


def test_a_closed_lid_does_not_count() -> None:
    pace = Pace()
    pace.note(0, 100, now=0)
    pace.note(10, 100, now=1)
    pace.note(12, 100, now=3600)
    assert pace.left_s is None
    pace.note(22, 100, now=3601)
    assert (pace.per_s, pace.left_s) == (10, 7.8)


def test_another_stage_begins_anew() -> None:
    pace = Pace()
    pace.note(90, 100, now=0)
    pace.note(0, 50, now=1)
    assert pace.per_s is None


def test_only_the_last_seconds_count() -> None:
    pace = Pace()
    for second in range(20):
        pace.note(100 * min(second, 5) + max(second - 5, 0), 1000, now=second)
    assert pace.per_s == 1
