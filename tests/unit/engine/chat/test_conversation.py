"""From messages to ids and from ids to text."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import Message
from engine.chat.chat_template import ChatTemplate
from engine.chat.conversation import ConversationEncoder
from engine.chat.thinking_switch import find_choices
from engine.errors import ConfigError, UnsupportedModelError
from tests.unit.engine.byte_tokenizer import HARMONY, HARMONY_MARKS, OPENED, QWEN, with_template

# -- messages


def encode(tokenizer: Any, *how: Any, **options: Any) -> list[int]:
    return ConversationEncoder(tokenizer).encode(*how, **options)


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
