"""A chat template gets what is said in the form it wants, or the model is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import Message
from engine.chat.chat_template import ChatTemplate
from engine.chat.conversation import ConversationEncoder
from engine.chat.end_tokens import end_tokens
from engine.chat.prompt import ChatPrompts
from engine.chat.template_renderer import RenderLimits, TemplateRenderer
from engine.errors import CheckpointError, ConfigError, UnsupportedModelError
from engine.sampling.defaults import ModelDefaults
from offload.errors import WaitCancelled
from tests.unit.engine.byte_tokenizer import byte_tokenizer, with_template
from tests.unit.engine.chat.typical_templates import CHATML, EITHER, PARTS, TYPICAL

SYSTEM, USER, ANSWER = Message("system", "be brief"), Message("user", "hi"), Message("assistant", "ho")
ALL = (SYSTEM, USER, ANSWER, USER)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def prompt(template: str, *messages: Message, **how: Any) -> str:
    tokenizer = with_template(template)
    return str(tokenizer.decode(ConversationEncoder(tokenizer).encode(messages, **how)))


def test_content_goes_in_parts_where_the_template_wants_parts() -> None:
    for template in (PARTS, EITHER, CHATML):
        assert prompt(template, *ALL) == prompt(CHATML, *ALL)
        assert prompt(template, USER, ANSWER, continues=True) == prompt(CHATML, USER, ANSWER, continues=True)


def test_each_role_has_its_own_form() -> None:
    mixed = (
        "{% for m in messages %}[{{ m.role }}]{% if m.role == 'user' %}{{ m.content[0].text }}"
        "{% else %}{{ '' + m.content }}{% endif %}{% endfor %}"
    )
    assert prompt(mixed, *ALL) == "[system]be brief[user]hi[assistant]ho[user]hi"


@pytest.mark.parametrize(
    "template",
    [
        "",
        " ",
        "{{ '' }}",
        "<|im_start|>assistant\n",
        "{% for m in messages %}{% if m.role == 'human' %}{{ m.content }}{% endif %}{% endfor %}",
        "{% for m in messages %}{{ m.text }}{% endfor %}",
        "{% for part in messages[0].content %}{% if part.type == 'image' %}i{% endif %}{% endfor %}",
    ],
)
def test_a_template_that_leaves_the_question_out_is_refused(template: str) -> None:
    if not template:
        assert prompt(template, USER) == "User: hi\nAssistant:"
        return
    with pytest.raises(UnsupportedModelError, match=r"tokenizer_config\.json leaves out what the user says") as caught:
        prompt(template, USER)
    assert caught.value.hint
    with pytest.raises(UnsupportedModelError, match="leaves out what the user says"):
        ChatPrompts(with_template(template), 100)


def test_a_template_that_leaves_earlier_answers_out_is_refused_when_there_are_some() -> None:
    template = "{% for m in messages if m.role != 'assistant' %}[{{ m.content }}]{% endfor %}"
    assert prompt(template, USER) == "[hi]"
    tokenizer = with_template(template)
    ends = end_tokens(tokenizer, ModelDefaults(), (), ChatTemplate(tokenizer))
    assert ends == {tokenizer.eos_token_id}
    with pytest.raises(UnsupportedModelError, match="leaves out what the model has answered"):
        prompt(template, USER, ANSWER, USER)


def test_a_system_prompt_that_would_be_left_out_goes_before_the_question() -> None:
    template = "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert prompt(template, *ALL) == "[user]be brief\n\nhi[assistant]ho[user]hi"


def test_a_template_that_demands_a_system_prompt_is_checked_with_one() -> None:
    demands = "{% if messages[0].role != 'system' %}{{ raise_exception('system first') }}{% endif %}"
    assert prompt(demands + CHATML, SYSTEM, USER) == prompt(CHATML, SYSTEM, USER)
    with pytest.raises(UnsupportedModelError, match="leaves out what the user says"):
        prompt(demands + "x", SYSTEM, USER)
    with pytest.raises(UnsupportedModelError, match="system first"):
        prompt(demands + CHATML, USER)


def test_the_file_of_the_template_is_named(tmp_path: Path) -> None:
    tokenizer = with_template("nothing")
    tokenizer.save_pretrained(tmp_path)
    tokenizer = type(tokenizer).from_pretrained(tmp_path)
    name = "chat_template.jinja"
    assert (tmp_path / name).exists()
    with pytest.raises(UnsupportedModelError, match=name):
        ChatTemplate(tokenizer).check()


@pytest.mark.parametrize("wrong", [7, ["a"], {"tool_use": CHATML}, {"default": 7}])
def test_a_template_that_is_no_text(wrong: Any) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = wrong
    with pytest.raises(CheckpointError, match="tokenizer_config"):
        ConversationEncoder(tokenizer)


def test_the_default_one_of_several() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = {"default": CHATML, "tool_use": "x"}
    assert ChatTemplate(tokenizer).text == CHATML


def test_a_prompt_without_tokens_is_refused() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert prompt(template, USER) == "hi"
    with pytest.raises(ConfigError, match="no tokens"):
        prompt(template, Message("user", ""))


def test_special_tokens_are_variables() -> None:
    assert prompt("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", USER) == "<s>hi</s>"


def test_an_answer_is_left_open_as_the_library_does() -> None:
    for name in ("chatml", "trimming", "alternating", "splitting", "qwen", "harmony"):
        tokenizer = with_template(TYPICAL[name])
        for content in ("ho", "ho ", " ho\n", "a b\n\n"):
            chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
            expected = tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True)
            rendered = ChatTemplate(tokenizer).render([USER, Message("assistant", content)], {}, is_left_open=True)
            assert rendered == expected, name


def test_an_answer_that_the_template_shortens_cannot_be_continued() -> None:
    with pytest.raises(UnsupportedModelError, match="does not write the answer that is to be continued"):
        prompt(TYPICAL["shortening"], USER, Message("assistant", "x" * 60), continues=True)


@pytest.fixture
def impatient() -> Iterator[TemplateRenderer]:
    renderer = TemplateRenderer(RenderLimits(seconds=0.5))
    yield renderer
    renderer.close()


def test_a_template_that_runs_on_is_refused_with_its_file(impatient: TemplateRenderer) -> None:
    template = ChatTemplate(with_template(ENDLESS), renderer=impatient)
    for act in (template.check, lambda: template.render([USER], {}), lambda: template.probe([USER], {})):
        with pytest.raises(UnsupportedModelError, match=r"tokenizer_config\.json takes more than 0.5 s") as caught:
            act()
        assert "fetch" in caught.value.hint


def test_cancelling_stops_every_rendering() -> None:
    tokenizer = with_template(ENDLESS)
    for act in (
        lambda: ChatPrompts(tokenizer, 100, lambda: True),
        lambda: ConversationEncoder(tokenizer, lambda: True).encode([USER]),
        lambda: end_tokens(tokenizer, ModelDefaults(), (), ChatTemplate(tokenizer, lambda: True)),
    ):
        with pytest.raises(WaitCancelled):
            act()


def test_a_long_refusal_is_shortened() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        prompt("{{ raise_exception('x' * 5000) }}", USER)
    assert len(caught.value.message) < 500
