"""Answering a question in the other mode, as another version, to see both answers beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from app.chat import comparison
from app.chat.exchange import Exchange
from app.chat.versions import versions_at
from app.storage.records import TurnRecord
from app.ui.screens.compare import Compared, CompareScreen
from engine.config import EXACT
from engine.errors import MoeChatError
from engine.events import Event, Failed, TurnEnded

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen


class _Asked(NamedTuple):
    """An answer in the other mode, until it has ended."""

    exchange: Exchange
    mode: str
    mode_before: str


class Comparing:
    """Opens the comparison of the current answer; where there is none in the other mode, the engine is asked first."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat
        self._asked: _Asked | None = None

    async def action_compare(self) -> None:
        """The current answer beside one to the same question in the other mode."""
        exchange = self._chat.turn_actions.current
        answer = exchange.answer if exchange is not None else None
        if exchange is None or answer is None or exchange.is_live or not (answer.text.strip() and answer.stats):
            self._chat.say("There is no finished answer to compare yet.")
            return
        try:
            there = comparison.counterpart(answer, self._versions(exchange))
        except MoeChatError as error:
            self._chat.notify(error.in_full, severity="error", markup=False)
            return
        mode = comparison.other_mode(answer)
        if there is not None:
            self._open(exchange.question, answer, lambda: there, mode)
        else:
            await self._ask(exchange, answer, mode)

    def note(self, happened: list[Event]) -> None:
        """Once the answer has ended, the mode is as before, unless the user has changed it meanwhile."""
        asked, bridge = self._asked, self._chat.bridge
        if asked is None or not any(
            isinstance(event, TurnEnded | Failed) and event.request_id in (None, asked.exchange.request_id)
            for event in happened
        ):
            return
        self._asked = None
        if bridge.coming_mode == asked.mode:
            bridge.ask_mode(asked.mode_before)

    async def _ask(self, exchange: Exchange, answer: TurnRecord, mode: str) -> None:
        """Have the question answered in the other mode, and watch."""
        bridge = self._chat.bridge
        if not bridge.is_ready or self._chat.flow.is_busy:
            self._chat.say("The engine is not free to answer now; try again when it is.")
            return
        mode_before = bridge.coming_mode
        bridge.ask_mode(mode)
        problem = await self._chat.turn_actions.steps.regenerate(exchange, recomputes=mode == EXACT)
        if problem:
            bridge.ask_mode(mode_before)
            self._chat.say(problem)
            return
        again = self._chat.flow.conversation.exchanges[-1]
        self._asked = _Asked(again, mode, mode_before)
        self._open(exchange.question, answer, lambda: again.answer, mode)

    def _open(
        self, question: TurnRecord, answer: TurnRecord, other: Callable[[], TurnRecord | None], mode: str
    ) -> None:
        def answers() -> Compared:
            return Compared(other(), answer) if mode == EXACT else Compared(answer, other())

        self._chat.app.push_screen(CompareScreen(question.text, answers))

    def _versions(self, exchange: Exchange) -> list[TurnRecord]:
        """The other answers to the same question. Raises StoreError."""
        recorder, chat_id = self._chat.flow.recorder, self._chat.flow.conversation.chat_id
        position = exchange.question.position + 1
        found = []
        for name in versions_at(recorder.family(), chat_id, position):
            kept = recorder.load(name) if name != chat_id else None
            turns = kept[1] if kept is not None else []
            if any(_is_same(turn, exchange.question) for turn in turns):
                found += [turn for turn in turns if turn.position == position]
        return found


def _is_same(turn: TurnRecord, question: TurnRecord) -> bool:
    return (turn.position, turn.text, turn.attachments) == (question.position, question.text, question.attachments)
