"""What goes out of the engine's process, and what comes in, without the process."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from engine.api import Cancel, Command, CountTokens, Load, SetMode, Submit
from engine.config import APPROX, EXACT, EngineConfig
from engine.events import Failed, TaskEnded
from engine.process import mailboxes
from engine.process.mailboxes import Inbox, Outbox

LOAD = Load(EngineConfig(model="demo"))


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = Pipe()
    yield ours, theirs
    ours.close()


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch, ends: tuple[Connection, Connection]) -> Inbox:
    """Without its thread, which would end this process with the connection."""
    with monkeypatch.context() as without_threads:
        without_threads.setattr(mailboxes.threading, "Thread", lambda **_: NoThread())
        return Inbox(ends[1])


class NoThread:
    """Never runs."""

    def start(self) -> None:
        """Nothing to start."""


def test_an_event_that_cannot_be_sent_is_a_failure_of_its_request(ends: tuple[Connection, Connection]) -> None:
    ours, theirs = ends
    outbox = Outbox(theirs)
    outbox.put(TaskEnded(5, True, {"function": lambda: None}, ()))
    outbox.put(TaskEnded(6, True, {}, ()))
    heard = [ours.recv(), ours.recv()]
    (failed,) = (event for event in heard if isinstance(event, Failed))
    assert (failed.request_id, failed.is_fatal) == (5, False)
    assert [event.request_id for event in heard if isinstance(event, TaskEnded)] == [6]


@pytest.mark.parametrize(
    ("commands", "modes"),
    [
        ([], [EXACT]),
        ([SetMode(APPROX)], [APPROX]),
        ([SetMode(APPROX), LOAD], [APPROX, EXACT]),
        ([SetMode(APPROX), LOAD, SetMode(APPROX)], [APPROX, APPROX]),
        ([LOAD, SetMode(APPROX), LOAD], [APPROX, APPROX, EXACT]),
        ([LOAD, LOAD, SetMode(APPROX)], [APPROX, APPROX, APPROX]),
    ],
)
def test_a_mode_set_after_a_load_was_sent_wins_over_it(inbox: Inbox, commands: list[Command], modes: list[str]) -> None:
    """`modes`: before anything is taken up, and with every load that is. All are received before the first is taken
    up."""
    for command in commands:
        inbox._receive(command)
    found = [inbox.mode_after(EXACT)]
    for command in commands:
        inbox.begin(command)
        if isinstance(command, Load):
            found.append(inbox.mode_after(command.config.mode))
        inbox.end()
    assert found == modes


def test_a_cancel_of_whatever_runs_leaves_a_count_that_waits_alone(inbox: Inbox) -> None:
    inbox._receive(CountTokens(1, ("text",)))
    inbox._receive(Cancel())
    inbox._receive(Submit(2, ()))
    for number in (1, 2):
        inbox.begin(inbox.commands.get_nowait())
        assert not inbox.is_cancelled(), number
        inbox.end()
