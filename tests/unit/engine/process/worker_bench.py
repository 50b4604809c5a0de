"""A worker without its process: commands go in one by one, events are kept."""

from __future__ import annotations

from typing import Any, TypeVar

from engine.api import Command, Load, Message, Submit
from engine.config import SamplingConfig
from engine.events import Event, Snapshot
from engine.process.worker import Worker
from tests.unit.engine.commands.tiny_bench import config_of

Kind = TypeVar("Kind", bound=Event)


class WorkerBench:
    """Plays both mailboxes."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.worker = Worker(self, self)  # type: ignore[arg-type]

    def handle(self, command: Command) -> list[Event]:
        """What the worker says to a command."""
        before = len(self.events)
        self.worker._handle(command)
        return self.events[before:]

    def load(self, folder: Any) -> list[Event]:
        return self.handle(Load(config_of(folder)))

    def ask(self, text: str) -> list[Event]:
        return self.handle(Submit(7, (Message("user", text),), SamplingConfig(temperature=0.0, max_new_tok=2)))

    # the outbox

    def put(self, event: Event) -> None:
        self.events.append(event)

    def publish(self, snapshot: Snapshot) -> None:
        """Nobody looks."""

    # the inbox

    def begin(self, command: Command) -> None:
        """Nothing is ever cancelled."""

    def end(self) -> None:
        """As `begin`."""

    def is_cancelled(self) -> bool:
        return False

    def mode_after(self, mode: str) -> str:
        return mode


def only(kind: type[Kind], events: list[Event]) -> Kind:
    """The one event of that kind."""
    (found,) = (event for event in events if isinstance(event, kind))
    return found
