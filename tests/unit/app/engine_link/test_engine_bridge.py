"""The mode as the app's side of the engine has it: asked for, pending, confirmed, kept over a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.engine_link.bridge import EngineBridge
from engine.api import Load, SetMode
from engine.config import APPROX, EXACT, EngineConfig
from engine.events import ModeChanged
from tests.functional.app.fake_engine import FakeEngine


class Bench:
    """A bridge and the engines it made."""

    def __init__(self) -> None:
        self.engines: list[FakeEngine] = []
        self.bridge = EngineBridge(self._make, replace(EngineConfig(), mode=EXACT))
        self.bridge.start()

    def _make(self) -> FakeEngine:
        self.engines.append(FakeEngine())
        return self.engines[-1]

    def loaded_mode(self) -> str:
        return next(command.config.mode for command in self.engines[-1].sent if isinstance(command, Load))

    def asked(self) -> list[str]:
        return [command.mode for command in self.engines[-1].sent if isinstance(command, SetMode)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_mode_that_is_asked_for_already_is_not_asked_for_again(bench: Bench) -> None:
    bench.bridge.ask_mode(EXACT)
    bench.bridge.ask_mode(APPROX)
    bench.bridge.ask_mode(APPROX)
    assert bench.asked() == [APPROX]
    bench.bridge.ask_mode(EXACT)
    assert bench.asked() == [APPROX, EXACT]


def test_the_other_mode_is_the_other_one_of_what_is_asked_for(bench: Bench) -> None:
    assert bench.bridge.other_mode == APPROX
    bench.bridge.ask_mode(APPROX)
    assert bench.bridge.other_mode == EXACT
    bench.engines[-1].tell(ModeChanged(APPROX, None, None))
    bench.bridge.poll()
    assert (bench.bridge.mode, bench.bridge.wanted_mode) == (APPROX, None)


def test_a_pending_mode_holds_after_a_restart_and_is_said_to(bench: Bench) -> None:
    bench.bridge.ask_mode(APPROX)
    bench.bridge.restart()
    assert bench.loaded_mode() == APPROX
    assert (bench.bridge.mode, bench.bridge.wanted_mode) == (APPROX, None)


def test_a_mode_asked_of_a_dead_engine_is_what_the_next_one_starts_in(bench: Bench) -> None:
    bench.engines[-1].die()
    bench.bridge.poll()
    bench.bridge.ask_mode(APPROX)
    assert bench.bridge.mode == EXACT
    bench.bridge.restart()
    assert bench.loaded_mode() == bench.bridge.mode == APPROX
