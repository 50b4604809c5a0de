"""How much of the context a chat takes: counted by the engine with its last answer, else estimated from that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from app.chat.exchange import Exchange

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
        len(exchange.question.text) + (len(exchange.answer.text) if exchange.answer is not None else 0)
        for exchange in exchanges
        if exchange.is_in_context and not exchange.is_left_out
    )


def _count(record: dict[str, Any], key: str) -> int:
    """A record from elsewhere may hold anything."""
    value = record.get(key)
    return value if isinstance(value, int) and value > 0 else 0
