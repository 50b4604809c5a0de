"""The mode as the app's side of the engine has it: asked for, pending, confirmed, kept over a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.engine_link.bridge import EngineBridge
from engine.api import Command, Load, SetMode
from engine.config import APPROX, EXACT, EngineConfig
from engine.errors import EngineDiedError
from engine.events import EngineReady, Failed, ModeChanged
from tests.functional.app.fake_engine import READY, FakeEngine


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


def _load_ids(bench: Bench) -> list[int | None]:
    return [command.request_id for command in bench.engines[-1].sent if isinstance(command, Load)]


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_end_of_a_load_that_was_replaced_is_no_news(bench: Bench, is_ready: bool) -> None:
    bench.bridge.load(EngineConfig(model="other"))
    first, second = _load_ids(bench)
    assert first != second
    stopped = Failed(first, "Stopped", "It was stopped.", "", is_fatal=False)
    bench.engines[-1].tell(replace(READY, request_id=first) if is_ready else stopped)
    assert bench.bridge.poll() == []
    assert bench.bridge.is_loading
    bench.engines[-1].tell(replace(READY, request_id=second))
    assert [type(event) for event in bench.bridge.poll()] == [EngineReady]
    assert bench.bridge.is_ready
    assert not bench.bridge.is_loading


def test_a_load_that_fails_is_told_as_the_engines_failure(bench: Bench) -> None:
    bench.engines[-1].tell(Failed(*_load_ids(bench), "No such model", "x", "", is_fatal=False))
    (failed,) = bench.bridge.poll()
    assert isinstance(failed, Failed)
    assert failed.request_id is None
    assert bench.bridge.is_down


def test_a_command_to_an_engine_that_just_died_raises_nothing(bench: Bench) -> None:
    engine = bench.engines[-1]

    def die(command: Command) -> None:
        engine.die()
        raise EngineDiedError("The engine is gone.", "")

    engine.send = die  # type: ignore[method-assign]
    bench.bridge.ask_mode(APPROX)
    (failed,) = bench.bridge.poll()
    assert isinstance(failed, Failed)
    assert failed.is_fatal
    assert bench.bridge.is_down
