"""A question that comes while a profile is built is answered at once, and the building goes on behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import pytest

from engine.api import BuildProfile, Cancel, Load, Message, Submit
from engine.config import SamplingConfig
from engine.events import EngineReady, Event, Failed, Snapshot, TaskEnded, TaskProgress, TurnEnded
from engine.process import mailboxes
from engine.process.mailboxes import Inbox
from engine.process.worker import Worker
from tests.unit.engine.commands.tiny_bench import config_of, words
from tests.unit.engine.conftest import TinyFolder

BUILD, QUESTION = 5, 6


class NoThread:
    def start(self) -> None:
        """The test hands the commands over itself."""


class Engine:
    """A worker with its own inbox; `on_event` may send commands while one is at work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as without_threads:
            without_threads.setattr(mailboxes.threading, "Thread", lambda **_: NoThread())
            self.inbox = Inbox(Pipe()[1])
        self.events: list[Event] = []
        self.build: BuildProfile
        self.on_event: Callable[[Event], None] = lambda _: None
        self.worker = Worker(self.inbox, self)  # type: ignore[arg-type]

    def put(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def publish(self, snapshot: Snapshot) -> None:
        """Nobody looks."""

    def work_until(self, kind: type[Event]) -> Event:
        while not (found := [event for event in self.events if isinstance(event, kind)]):
            self.worker._handle(self.worker._next())
        return found[0]

    def recorded(self) -> list[int]:
        return [event.done for event in self.events if isinstance(event, TaskProgress) and event.stage == "recording"]


@pytest.fixture
def engine(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    engine = Engine(monkeypatch)
    engine.inbox._receive(Load(config_of(tiny_folder("qwen3_moe"))))
    engine.work_until(EngineReady)
    (tmp_path / "prompts.txt").write_text("\n".join(words(number, 5) for number in range(4)))
    engine.build = BuildProfile(BUILD, "own", str(tmp_path / "prompts.txt"), num_new_tok=3)
    engine.inbox._receive(engine.build)
    return engine


def _ask() -> Submit:
    return Submit(QUESTION, (Message("user", words(3, 4)),), SamplingConfig(temperature=0.0, max_new_tok=2))


def _at_second_prompt(engine: Engine, *commands: Submit | Cancel) -> None:
    waiting = list(commands)

    def send(event: Event) -> None:
        if isinstance(event, TaskProgress) and event.done == 1:
            while waiting:
                engine.inbox._receive(waiting.pop(0))

    engine.on_event = send


def test_building_goes_on_behind_the_answer(engine: Engine) -> None:
    _at_second_prompt(engine, _ask())
    ended = engine.work_until(TaskEnded)
    kinds = [type(event) for event in engine.events]
    assert kinds.index(TurnEnded) < kinds.index(TaskEnded)
    assert Failed not in kinds
    assert engine.recorded() == [0, 1, 1, 2, 3, 4], "what was recorded is not recorded again"
    assert isinstance(ended, TaskEnded)
    engine.events.clear()
    engine.inbox._receive(replace(engine.build, request_id=BUILD + 10))
    again = engine.work_until(TaskEnded)
    assert isinstance(again, TaskEnded)
    assert (ended.report, ended.report["num_prompts"]) == (again.report, 4)


def test_building_that_is_cancelled_while_it_waits_does_not_go_on(engine: Engine) -> None:
    _at_second_prompt(engine, _ask())
    engine.work_until(TurnEnded)
    engine.inbox._receive(Cancel(BUILD))
    failed = engine.work_until(Failed)
    assert isinstance(failed, Failed)
    assert failed.request_id == BUILD
    assert engine.recorded()[-1] == 1
    assert not any(isinstance(event, TaskEnded) for event in engine.events)
