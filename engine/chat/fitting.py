"""Fitting a conversation into the context: which turns are left out, and what a cached prompt and a new one share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.api import Message
from engine.errors import ContextFullError

_MIN_RESERVE_TOK = 32


class Fitted(NamedTuple):
    """A prompt that fits, and how many messages were left out for it."""

    prompt: list[int]
    num_left_out: int


def fit(
    messages: Sequence[Message],
    encode_all: Callable[[Sequence[Message]], list[int]],
    context_tok: int,
    max_new_tok: int | None,
    trims_oldest: bool,
    num_left_out_before: int = 0,
) -> Fitted:
    """The prompt of `messages`; with `trims_oldest` of as many as leave a reserve for the answer.

    Whole turns go, the oldest first: a message of the user with the answers to it. System messages at the beginning
    and the last turn stay. What was left out before is left out again where that is enough, and where more must go, an
    eighth of the context is freed besides: a prompt that begins as the last one did need not be computed anew.
    Raises ContextFullError when no token could be written after what must stay.
    """
    prompt = encode_all(messages)
    limit = context_tok - reserve_tok(context_tok, max_new_tok)
    if not trims_oldest or len(prompt) <= limit:
        check_fits(len(prompt), context_tok)
        return Fitted(prompt, 0)
    num_system, starts = _turn_starts(messages)

    def without(num_turns: int) -> Fitted:
        kept = [*messages[:num_system], *messages[starts[num_turns] :]]
        return Fitted(encode_all(kept), starts[num_turns] - num_system)

    if num_left_out_before and num_system + num_left_out_before in starts:
        fitted = without(starts.index(num_system + num_left_out_before))
        if len(fitted.prompt) <= limit:
            return fitted
    fitted = _fewest(without, len(starts) - 1, limit - context_tok // 8)
    check_fits(len(fitted.prompt), context_tok)
    return fitted


def _fewest(without: Callable[[int], Fitted], most: int, limit_tok: int) -> Fitted:
    """With the fewest turns left out, at least one and at most `most`, that come within the limit; else with `most`."""
    low, high = min(1, most), most
    while low < high:
        middle = (low + high) // 2
        fits = len(without(middle).prompt) <= limit_tok
        low, high = (low, middle) if fits else (middle + 1, high)
    return without(high)


def reserve_tok(context_tok: int, max_new_tok: int | None) -> int:
    """Tokens kept free for the answer: an eighth of the context, at least 32, and no more than were asked for."""
    reserve = min(max(context_tok // 8, _MIN_RESERVE_TOK), context_tok // 2)
    return min(reserve, max_new_tok) if max_new_tok is not None else reserve


def _turn_starts(messages: Sequence[Message]) -> tuple[int, list[int]]:
    """How many system messages there are at the beginning, and where each turn after them begins."""
    num_system = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    return num_system, [num_system, *(i for i in users if i > num_system)]


def common_prefix(cached: Sequence[int], prompt: Sequence[int]) -> int:
    """How many leading ids agree; less than the prompt, whose last token must be computed for its logits."""
    limit = min(len(cached), len(prompt) - 1)
    for position in range(limit):
        if cached[position] != prompt[position]:
            return position
    return max(limit, 0)


def check_fits(num_prompt_tok: int, context_tok: int) -> None:
    """Raises ContextFullError when no token could be written after the prompt."""
    if num_prompt_tok >= context_tok:
        raise ContextFullError(
            f"The conversation has {num_prompt_tok} tokens; the context holds {context_tok}.",
            "Start a new chat, shorten the message, or give the engine more context (--context) and memory.",
            num_prompt_tok,
            context_tok,
        )
