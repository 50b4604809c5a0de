"""Which turns are left out so that a conversation fits, and what two prompts share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Message
from engine.chat.fitting import check_fits, common_prefix, fit, reserve_tok
from engine.errors import ContextFullError


@given(cached=st.lists(st.integers(0, 2), max_size=12), prompt=st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_the_common_prefix(cached: list[int], prompt: list[int]) -> None:
    length = common_prefix(cached, prompt)
    assert 0 <= length < len(prompt)
    assert cached[:length] == prompt[:length]
    is_longest = length == len(prompt) - 1 or length == len(cached) or cached[length] != prompt[length]
    assert is_longest


def test_a_prompt_must_leave_room_for_a_token() -> None:
    check_fits(99, 100)
    with pytest.raises(ContextFullError, match="100 tokens; the context holds 100") as caught:
        check_fits(100, 100)
    assert caught.value.hint


def by_length(messages: Any) -> list[int]:
    """One token a character of content."""
    return [0] * sum(len(message.content) for message in messages)


def chat(*lengths: int, system: int = 0) -> tuple[Message, ...]:
    head = (Message("system", "s" * system),) if system else ()
    return (*head, *(Message(("user", "assistant")[i % 2], "x" * length) for i, length in enumerate(lengths)))


@pytest.mark.parametrize(
    ("messages", "left_out", "prompt_tok"),
    [
        (chat(50, 50, 50), 0, 150),
        (chat(50, 50, 50, 50, 50), 2, 150),
        (chat(50, 50, 50, 50, 50, system=80), 4, 130),
        (chat(200, 10, 10, 10, 10, system=20), 2, 50),
        (chat(200, 10, 10, 10, 190, 20), 4, 210),
        (chat(10, 10, 240), 2, 240),
        (chat(10, 10, 255), 2, 255),
    ],
)
def test_the_oldest_turns_go_until_the_rest_fits(messages: tuple[Message, ...], left_out: int, prompt_tok: int) -> None:
    fitted = fit(messages, by_length, 256, None, trims_oldest=True)
    assert (fitted.num_left_out, len(fitted.prompt)) == (left_out, prompt_tok)


def test_what_was_left_out_before_is_left_out_again_where_that_is_enough() -> None:
    turns = chat(50, 50, 50, 50, 50, 50, 20)
    assert fit(turns, by_length, 256, None, trims_oldest=True).num_left_out == 4
    assert fit(turns, by_length, 256, None, trims_oldest=True, num_left_out_before=2).num_left_out == 2
    longer = (*turns, Message("assistant", "x" * 40))
    assert fit(longer, by_length, 256, None, trims_oldest=True, num_left_out_before=2).num_left_out == 4
    assert fit(turns[4:], by_length, 256, None, trims_oldest=True, num_left_out_before=2).num_left_out == 0


def test_nothing_is_left_out_unasked_or_unneeded() -> None:
    assert fit(chat(50, 50, 140), by_length, 256, None, trims_oldest=False).num_left_out == 0
    assert fit(chat(50, 50, 140), by_length, 256, 16, trims_oldest=True).num_left_out == 0
    assert fit(chat(50, 50, 140), by_length, 256, None, trims_oldest=True).num_left_out == 2


@pytest.mark.parametrize("trims_oldest", [False, True])
def test_what_cannot_fit_is_refused_with_its_numbers(trims_oldest: bool) -> None:
    with pytest.raises(ContextFullError) as caught:
        fit(chat(50, 50, 300), by_length, 256, None, trims_oldest)
    assert (caught.value.prompt_tok, caught.value.context_tok) == (300 if trims_oldest else 400, 256)


@pytest.mark.parametrize(
    ("context_tok", "max_new_tok", "expected"), [(8192, None, 1024), (8192, 100, 100), (64, None, 32), (16, None, 8)]
)
def test_the_reserve_for_an_answer(context_tok: int, max_new_tok: int | None, expected: int) -> None:
    assert reserve_tok(context_tok, max_new_tok) == expected
