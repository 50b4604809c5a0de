"""What of a chat the model is told: the system prompt, what is in the context, and the question."""

from __future__ import annotations

from collections.abc import Iterable

from app.chat.exchange import Exchange
from app.formatting.sanitise import whole
from app.storage.records import ASSISTANT, USER, TurnRecord
from engine.api import Message


def messages(system_prompt: str, exchanges: Iterable[Exchange], last: Exchange) -> tuple[Message, ...]:
    """The messages for `last`, with the beginning of its answer where it is continued.

    A question in the context that has no answer stands before the next one in one message: many templates take
    questions and answers in turn only.
    """
    told = [_message("system", system_prompt)] if system_prompt else []
    unanswered: list[str] = []
    for exchange in exchanges:
        if exchange is last:
            break
        if not exchange.is_in_context:
            continue
        unanswered.append(exchange.question.text)
        if exchange.answer is not None and exchange.is_answered:
            told += [_message(USER, "\n\n".join(unanswered)), _answer(exchange.answer)]
            unanswered = []
    told.append(_message(USER, "\n\n".join([*unanswered, last.question.text])))
    if last.is_resuming and last.answer is not None:
        told.append(_answer(last.answer))
    return tuple(told)


def first_exchanges(exchanges: Iterable[Exchange], num_messages: int) -> list[Exchange]:
    """The exchanges that the first `num_messages` messages after the system prompt are made from."""
    found: list[Exchange] = []
    for exchange in exchanges:
        if num_messages <= 0:
            break
        if exchange.is_in_context:
            found.append(exchange)
            num_messages -= 2 if exchange.is_answered else 0
    return found


def _message(role: str, text: str, thinking: str = "") -> Message:
    """A message as a tokenizer takes it, wherever its text came from."""
    return Message(role, whole(text), whole(thinking))


def _answer(answer: TurnRecord) -> Message:
    return _message(ASSISTANT, answer.text, answer.thinking)
