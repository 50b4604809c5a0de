"""The floor of a token's compute at its own context length."""

from __future__ import annotations

import pytest

from engine.telemetry.compute_floor import ComputeFloor


def test_between_two_calibrated_lengths_it_grows_on_a_line() -> None:
    floor = ComputeFloor(((0, 10.0), (4096, 50.0)), 4097)
    assert floor.at(0) == 10.0
    assert floor.at(2048) == pytest.approx(30.0)
    assert floor.at(4096) == pytest.approx(50.0)
    assert floor.mean(1024, 2048) == pytest.approx(30.0, rel=0.02)
    assert floor.mean(1024, 1) == floor.at(1024)


def test_one_calibrated_length_counts_for_all() -> None:
    floor = ComputeFloor(((0, 10.0),), 4096)
    assert floor.at(0) == floor.at(4095) == floor.at(10_000) == 10.0


def test_a_quick_step_lowers_what_is_as_short_or_shorter_and_nothing_longer() -> None:
    floor = ComputeFloor(((0, 10.0), (4096, 50.0)), 4097)
    floor.observe(2048, 20.0)
    assert floor.at(0) == 10.0
    assert floor.at(1536) == 20.0
    assert floor.at(2048) == 20.0
    assert floor.at(2048 + 64) > 30.0
    floor.observe(3000, 5.0)
    assert floor.at(0) == floor.at(2048) == 5.0, "less compute takes no longer"
    floor.observe(3000, 500.0)
    assert floor.at(3000) == 5.0


def test_a_calibration_that_took_longer_on_the_shorter_context_is_noise() -> None:
    floor = ComputeFloor(((0, 30.0), (4096, 20.0)), 4097)
    assert floor.at(0) == floor.at(4096) == 20.0


def test_no_answer_is_below_the_mean_of_its_own_floor() -> None:
    floor = ComputeFloor(((0, 10.0), (1024, 50.0)), 1025)
    steps = [12.0, 3.0, 40.0, 8.0] * 50
    for number, step_ms in enumerate(steps):
        floor.observe(500 + number, step_ms)
    assert floor.mean(500, len(steps)) <= sum(steps) / len(steps)
