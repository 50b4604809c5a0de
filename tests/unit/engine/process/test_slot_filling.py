"""While no command waits, the worker fills slots; whatever comes goes first."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe

import pytest

from engine.api import Cancel, CountTokens, Load, Message, Submit
from engine.config import SamplingConfig
from engine.events import EngineReady, Event, Snapshot, TurnEnded
from engine.process import mailboxes
from engine.process.mailboxes import Inbox
from engine.process.session import Session
from engine.process.slot_filling import fill_slots
from engine.process.worker import Worker
from tests.functional.engine.running_engine import wait_until
from tests.unit.engine.commands.tiny_bench import config_of, words
from tests.unit.engine.conftest import TinyFolder


class NoThread:
    def start(self) -> None:
        """The test hands the commands over itself."""


class Engine:
    """A worker with its own inbox and a model whose experts all fit. `on_snapshot` may send commands."""

    def __init__(self, tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as without_threads:
            without_threads.setattr(mailboxes.threading, "Thread", lambda **_: NoThread())
            self.inbox = Inbox(Pipe()[1])
        self.events: list[Event] = []
        self.on_snapshot: Callable[[], None] = lambda: None
        self.worker = Worker(self.inbox, self)  # type: ignore[arg-type]
        self.inbox._receive(Load(config_of(tiny_folder("qwen3_moe"), residency=1.0)))
        self.worker._handle(self.worker._next())
        assert any(isinstance(event, EngineReady) for event in self.events)
        self.session.telemetry.is_due = lambda: True  # type: ignore[method-assign]

    @property
    def session(self) -> Session:
        assert self.worker._session is not None
        return self.worker._session

    def put(self, event: Event) -> None:
        self.events.append(event)

    def publish(self, snapshot: Snapshot) -> None:
        self.on_snapshot()

    def num_absent(self) -> int:
        cache = self.session.engine.cache
        return sum(len(cache.absent(layer)) for layer in range(len(cache.slots_per_layer)))


@pytest.fixture
def engine(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(tiny_folder, monkeypatch)


def test_a_question_finds_its_experts(engine: Engine) -> None:
    assert engine.num_absent() > 0
    fill_slots(engine.session, engine.inbox.newcomers())
    assert engine.num_absent() == 0
    engine.inbox._receive(Submit(7, (Message("user", words(3, 9)),), SamplingConfig(temperature=0, max_new_tok=4)))
    engine.worker._handle(engine.worker._next())
    (ended,) = (event for event in engine.events if isinstance(event, TurnEnded))
    assert (ended.stats.prefill_bytes, ended.stats.counters.hit_rate) == (0, 1.0), "it waited for nothing"


def test_whatever_comes_goes_first(engine: Engine) -> None:
    absent = engine.num_absent()
    engine.inbox._receive(CountTokens(8, ("a",)))
    assert isinstance(engine.worker._next(), CountTokens)
    assert engine.num_absent() == absent, "it waited already"
    engine.on_snapshot = lambda: engine.inbox._receive(Cancel(None))
    fill_slots(engine.session, engine.inbox.newcomers())
    assert 0 < engine.num_absent() < absent
    absent = engine.num_absent()
    engine.on_snapshot = lambda: engine.inbox._receive(CountTokens(9, ("a",)))
    assert isinstance(engine.worker._next(), CountTokens)
    assert 0 < engine.num_absent() < absent


def test_an_answer_that_begins_at_once_is_filled_beside(engine: Engine) -> None:
    """Nothing is idle between loading and the question, and yet its last tokens miss nothing."""
    asked = Submit(7, (Message("user", words(3, 9)),), SamplingConfig(temperature=0, max_new_tok=40))
    engine.on_snapshot = lambda: wait_until(lambda: engine.session.engine.link.queued == 0)
    engine.inbox._receive(asked)
    engine.worker._handle(engine.inbox.commands.get())
    (ended,) = (event for event in engine.events if isinstance(event, TurnEnded))
    assert ended.stats.new_tok == 40
    cache = engine.session.engine.cache
    while any(cache.num_loading(layer) for layer in range(len(cache.slots_per_layer))):
        for layer in range(len(cache.slots_per_layer)):
            cache.settle(layer)
    assert engine.num_absent() == 0
