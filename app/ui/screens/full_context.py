"""What the user decides once the context is full: nothing is left out without being asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.conversation import Conversation
from app.chat.exchange import Exchange
from app.ui.key_map import key_for
from app.ui.widgets.decision_bar import Choice, DecisionBar

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen

_TRIM, _NEW_CHAT, _BACK, _LEAVE = "trim", "new", "back", "leave"
_BRANCHING = ("chat.turn_before", "chat.turn_after", "turn.branch")


class FullContext:
    """The decision of a chat screen, shown in its DecisionBar. It is about one exchange, and goes with it."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat
        self._about: tuple[Conversation, Exchange] | None = None

    def ask(self, exchange: Exchange) -> None:
        """Offer what can be done about an exchange that met the end of the context."""
        conversation = self._chat.flow.conversation
        self._about = (conversation, exchange)
        what = "The context is full. "
        if _is_answered(exchange):
            what += "The answer was cut: there is no room for the rest of it."
        else:
            what += "The question and what came before it do not fit."
        if conversation.trims_oldest:
            what += " The oldest turns have been left out already."
        what += f" {key_for(self._chat, 'chat.decide')} goes to the choices."
        trims = exchange is not conversation.exchanges[0]
        trim = "the model no longer sees them; they stay in the chat" if trims else "there is no older turn"
        branch = key_for(self._chat, "turn.branch")
        self._bar.show(
            what,
            (
                Choice(_TRIM, "Leave out the oldest turns", trim, trims),
                Choice(_NEW_CHAT, "New chat", "in the same domain; an unanswered question goes along"),
                Choice(_BACK, "Go back", f"to an earlier turn; {branch} continues from there in a chat of its own"),
                Choice(_LEAVE, "Leave it as it is", "and close this"),
            ),
        )

    def tend(self) -> None:
        """Close the decision once the chat has moved on from what it is about."""
        if self._about is not None:
            conversation, exchange = self._about
            is_there = exchange in conversation.exchanges and not exchange.is_live
            if conversation is not self._chat.flow.conversation or not is_there:
                self.close()

    def close(self) -> None:
        """Nothing is to be decided any more."""
        self._about = None
        if self._chat.focused is not None and self._bar in self._chat.focused.ancestors:
            self._chat.focus_prompt()
        self._bar.display = False
        self._chat.refresh_bindings()

    async def follow(self, choice: str) -> str:
        """Do what was chosen; returns what stands in its way or is to be known."""
        if self._about is None:
            return ""
        _, exchange = self._about
        self.close()
        chat, prompt = self._chat, self._chat.prompt
        if choice == _TRIM:
            step = chat.turn_actions.steps.go_on if _is_answered(exchange) else chat.turn_actions.steps.regenerate
            return await step(exchange, trims_oldest=True)
        if choice == _NEW_CHAT:
            await chat.run_action("new_chat")
            if not _is_answered(exchange):
                prompt.give_back(exchange.question.text)
        elif choice == _BACK:
            await chat.turn_actions.action_to_turn(-1)
            before, after, branch = (key_for(chat, action) for action in _BRANCHING)
            return f"{before} and {after} move between turns; {branch} continues from one."
        return ""

    @property
    def _bar(self) -> DecisionBar:
        return self._chat.query_one(DecisionBar)


def _is_answered(exchange: Exchange) -> bool:
    return exchange.answer is not None and bool(exchange.answer.text)
