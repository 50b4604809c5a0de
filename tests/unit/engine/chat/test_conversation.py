"""From messages to ids and from ids to text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Message
from engine.chat.chat_template import ChatTemplate
from engine.chat.conversation import ConversationEncoder
from engine.chat.end_tokens import end_tokens
from engine.chat.fitting import check_fits, common_prefix, fit, reserve_tok
from engine.chat.thinking_switch import find_choices
from engine.errors import CheckpointError, ConfigError, ContextFullError, UnsupportedModelError
from engine.sampling.defaults import ModelDefaults
from tests.unit.engine.byte_tokenizer import HARMONY, HARMONY_MARKS, OPENED, QWEN, with_template

# -- messages


def encode(tokenizer: Any, *how: Any, **options: Any) -> list[int]:
    return ConversationEncoder(tokenizer).encode(*how, **options)


def ends_of(tokenizer: Any, model: Any, *own: int) -> frozenset[int]:
    return end_tokens(tokenizer, ModelDefaults(end_tokens=frozenset(own)), model, ChatTemplate(tokenizer))


PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + PLAIN
)
SYSTEM, USER, ASSISTANT = Message("system", "be brief"), Message("user", "hi"), Message("assistant", "ho")


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [
        (PLAIN, (USER,), "[user]hi[a]"),
        (PLAIN, (SYSTEM, USER, ASSISTANT, USER), "[system]be brief[user]hi[assistant]ho[user]hi[a]"),
        (NO_SYSTEM, (USER, ASSISTANT, USER), "[user]hi[assistant]ho[user]hi[a]"),
        (NO_SYSTEM, (SYSTEM, USER), "[user]be brief\n\nhi[a]"),
        (ALTERNATING, (SYSTEM, USER, ASSISTANT, USER), "[user]be brief\n\nhi[assistant]ho[user]hi[a]"),
        (None, (USER,), "User: hi\nAssistant:"),
        (None, (SYSTEM, USER, ASSISTANT, USER), "System: be brief\nUser: hi\nAssistant: ho\nUser: hi\nAssistant:"),
    ],
)
def test_prompts(template: str | None, messages: tuple[Message, ...], expected: str) -> None:
    tokenizer = with_template(template)
    assert tokenizer.decode(encode(tokenizer, messages)) == expected


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        (ALTERNATING, (ASSISTANT, USER)),
        (NO_SYSTEM, (SYSTEM,)),
        ("{{ raise_exception('never') }}", (SYSTEM, USER)),
        ("{% for %}", (USER,)),
        ("{{ messages[5].content.nothing }}", (USER,)),
    ],
)
def test_a_template_that_refuses(template: str, messages: tuple[Message, ...]) -> None:
    with pytest.raises(UnsupportedModelError, match="chat template refused") as caught:
        encode(with_template(template), messages)
    assert caught.value.hint


def test_text_of_a_message_is_never_a_special_token_by_accident_of_python_formatting() -> None:
    tokenizer = with_template(PLAIN)
    odd = Message("user", "{{ 1 + 1 }} {% raw %} %s {0}")
    assert tokenizer.decode(encode(tokenizer, (odd,))) == f"[user]{odd.content}[a]"


# -- ids


class Holder:
    """Something with an end token."""

    def __init__(self, eos_token_id: Any) -> None:
        self.eos_token_id = eos_token_id


@pytest.mark.parametrize(
    ("generation", "model", "tokenizer", "expected"),
    [
        ((1, 2), 3, 4, {1, 2, 3, 4}),
        ((), [5, [6]], None, {5, 6}),
        ((0,), -1, 0, {0}),
        ((), None, None, set()),
    ],
)
def test_every_end_token_counts(generation: Any, model: Any, tokenizer: Any, expected: set[int]) -> None:
    assert ends_of(Holder(tokenizer), Holder(model), *generation) == expected


def test_an_end_token_of_the_models_config_that_is_no_number_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: eos_token_id is '</s>'"):
        ends_of(with_template(None), Holder("</s>"))


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


def test_a_nested_config_and_the_template_name_end_tokens() -> None:
    tokenizer = with_template(QWEN, special=("<|im_end|>",))
    nested = Holder(None)
    nested.text_config = Holder(7)
    ends = ends_of(tokenizer, nested)
    assert ends == {7, tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")}


def test_a_channel_that_ends_is_no_end_of_the_answer() -> None:
    tokenizer = with_template(HARMONY.replace("<|return|>", "<|end|>"), special=HARMONY_MARKS)
    assert ends_of(tokenizer, Holder(None)) == {tokenizer.eos_token_id}


# -- thinking and continuing


@pytest.mark.parametrize(
    ("template", "choices"),
    [
        (QWEN, ("off", "on")),
        (HARMONY, ("low", "medium", "high")),
        (PLAIN, ()),
        (None, ()),
        ("{% if thinking %}t{% endif %}" + PLAIN, ("off", "on")),
        ("{# enable_thinking #}" + PLAIN, ()),
        (
            "{% if reasoning_effort not in ['low', 'max'] %}{{ raise_exception('no') }}{% endif %}"
            "{% if enable_thinking %}{{ reasoning_effort }}{% endif %}" + PLAIN,
            (),
        ),
        (
            "{% if enable_thinking %}{% if reasoning_effort == 'max' %}!{% elif reasoning_effort == 'low' %}?"
            "{% endif %}t{% endif %}" + PLAIN,
            ("off", "low", "max"),
        ),
    ],
)
def test_what_a_template_lets_the_user_choose(template: str | None, choices: tuple[str, ...]) -> None:
    assert tuple(find_choices(ChatTemplate(with_template(template)))) == choices


def test_a_choice_goes_to_the_template() -> None:
    tokenizer = with_template(QWEN)
    off = encode(tokenizer, (USER,), find_choices(ChatTemplate(tokenizer))["off"])
    assert tokenizer.decode(off).endswith("assistant\n<think>\n\n</think>\n\n")
    assert encode(tokenizer, (USER,), find_choices(ChatTemplate(tokenizer))["on"]) == encode(tokenizer, (USER,))


@pytest.mark.parametrize(
    ("template", "answer", "expected"),
    [
        (PLAIN, Message("assistant", "ho, w"), "[user]hi[assistant]ho, w"),
        (None, Message("assistant", "ho, w"), "User: hi\nAssistant: ho, w"),
        (None, Message("assistant", " ho, w"), "User: hi\nAssistant: ho, w"),
        (PLAIN, Message("assistant", ""), "[user]hi[a]"),
        (
            QWEN,
            Message("assistant", "ho", "hm"),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nho",
        ),
        (QWEN, Message("assistant", "", "hm"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\nhm"),
        (OPENED, Message("assistant", "", "hm"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\nhm"),
        (
            HARMONY,
            Message("assistant", "ho"),
            "<|start|>system<|message|>Reasoning: medium<|end|><|start|>user"
            "<|message|>hi<|end|><|start|>assistant<|channel|>final<|message|>ho",
        ),
        (
            HARMONY,
            Message("assistant", "", "hm"),
            "<|start|>system<|message|>Reasoning: medium<|end|><|start|>user"
            "<|message|>hi<|end|><|start|>assistant<|channel|>analysis<|message|>hm",
        ),
    ],
)
def test_an_answer_is_continued_without_a_break(template: str | None, answer: Message, expected: str) -> None:
    tokenizer = with_template(template, special=HARMONY_MARKS if template == HARMONY else ())
    assert tokenizer.decode(encode(tokenizer, (USER, answer), continues=True)) == expected


def test_there_must_be_an_answer_to_continue() -> None:
    for messages in ((), (USER,)):
        with pytest.raises(ConfigError, match="no answer to continue"):
            encode(with_template(PLAIN), messages, continues=True)


# -- fitting


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
