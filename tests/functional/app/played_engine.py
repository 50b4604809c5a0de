"""An engine for the commands without a screen: it loads, then does what a test says to any other command."""

from __future__ import annotations

from collections.abc import Callable

from engine.api import Command, Load, Submit
from engine.events import PrefillProgress, TextDelta
from tests.functional.app.fake_engine import FakeEngine, ObedientEngine

Play = Callable[[FakeEngine, Command], None]


class PlayedEngine(ObedientEngine):
    """Loads, then plays."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self._play = play

    def answer(self, command: Command) -> None:
        if isinstance(command, Load):
            super().answer(command)
        else:
            self._play(self, command)


def say_paris(engine: FakeEngine, command: Command) -> None:
    """Answer every question the same."""
    if isinstance(command, Submit):
        request_id = command.request_id
        engine.tell(PrefillProgress(request_id, 0, 20, 0))
        engine.tell(TextDelta(request_id, "It is ", 2), TextDelta(request_id, "Paris.", 4))
        engine.end_answer(request_id, "It is Paris.", 4)
