"""What of a chat the model is told, and how much of the context that takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from app.chat.attachments import sent_text
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
        unanswered.append(sent_text(exchange.question))
        if exchange.answer is not None and exchange.is_answered:
            told += [_message(USER, "\n\n".join(unanswered)), _answer(exchange.answer)]
            unanswered = []
    told.append(_message(USER, "\n\n".join([*unanswered, sent_text(last.question)])))
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


CHARACTERS = "context_characters"
"""Key in the record of an answer: the characters that were in the context once it had ended."""

_CHARACTERS_A_TOKEN = 4
"""Until an answer of the chat tells better."""


class ContextSize(NamedTuple):
    """Tokens that the next question finds in the context."""

    used_tok: int
    is_estimate: bool


def context_size(system_prompt: str, exchanges: Sequence[Exchange]) -> ContextSize:
    """As counted with the last answer that has a record; scaled by the characters where the chat has changed since."""
    characters = context_characters(system_prompt, exchanges)
    for number in reversed(range(len(exchanges))):
        answer = exchanges[number].answer
        record: dict[str, Any] = (answer.stats if answer is not None else None) or {}
        used_tok = _count(record, "prompt_tok") + _count(record, "new_tok")
        then = _count(record, CHARACTERS) or context_characters(system_prompt, exchanges[: number + 1])
        if used_tok and then:
            return ContextSize(round(used_tok * characters / then), characters != then)
    return ContextSize(-(-characters // _CHARACTERS_A_TOKEN), characters > 0)


def context_characters(system_prompt: str, exchanges: Sequence[Exchange]) -> int:
    """The characters that the next question finds in the context."""
    return len(system_prompt) + sum(
        len(sent_text(exchange.question)) + (len(exchange.answer.text) if exchange.answer is not None else 0)
        for exchange in exchanges
        if exchange.is_in_context and not exchange.is_left_out
    )


def _count(record: dict[str, Any], key: str) -> int:
    """A record from elsewhere may hold anything."""
    value = record.get(key)
    return value if isinstance(value, int) and value > 0 else 0
