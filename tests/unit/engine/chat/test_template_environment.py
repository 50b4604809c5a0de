"""Templates render, and refuse, as they do in transformers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from engine.chat.template_process import REFUSED, TEXT, answer
from tests.llama_cpp_vocabularies import templates
from tests.unit.engine.byte_tokenizer import with_template
from tests.unit.engine.chat.typical_templates import TYPICAL

long = pytest.mark.long
USER, LONG = {"role": "user", "content": " hi <b> & 'é' \n"}, {"role": "user", "content": "x!" * 40}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nho "}
THOUGHT = {"thinking": "hm", "role": "assistant", "content": "ho", "reasoning_content": "hm"}
SYSTEM = {"role": "system", "content": "be brief"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}
CONVERSATIONS = [[USER], [SYSTEM, USER, ANSWER, LONG], [USER, THOUGHT, USER], [USER, THOUGHT], [PARTS], [ANSWER, USER]]
REFUSING = {
    "syntax": "{% for %}",
    "unknown filter": "{{ 1 | nothing }}",
    "unknown tag": "{% nothing %}",
    "undefined": "{{ messages[7].content.more }}",
    "private": "{{ messages.__class__.__mro__ }}",
    "private by filter": "{{ messages | attr('__class__') }}",
    "changes its input": "{{ messages.append(1) }}",
    "private in a namespace": "{% set ns = namespace(_a=1) %}",
    "private set in a namespace": "{% set ns = namespace() %}{% set ns.__init__ = 1 %}",
    "format": "{{ '{0.__class__}'.format(messages) }}",
    "imports": "{% include 'a' %}",
    "the type of a dict": "{{ dict.__mro__ }}",
    "range": "{{ range(1000000) | length }}",
    "generation that does not end": "{% generation %}",
    "division": "{{ 1 / 0 }}",
}


def theirs(template: str, turns: Any, opens: bool, variables: dict[str, Any]) -> str | None:
    """What transformers makes of it; None: it raises."""
    try:
        return str(
            with_template(template).apply_chat_template(turns, tokenize=False, add_generation_prompt=opens, **variables)
        )
    except Exception:  # noqa: BLE001 - whatever jinja2 raises
        return None


def ours(template: str, turns: Any, opens: bool, variables: dict[str, Any]) -> str | None:
    known = {"messages": turns, "tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
    found = answer({"template": template, "variables": {**known, "add_generation_prompt": opens, **variables}}, 1 << 20)
    assert (TEXT in found) != (REFUSED in found)
    return str(found[TEXT]) if TEXT in found else None


@pytest.mark.parametrize("name", TYPICAL)
def test_typical_templates(name: str) -> None:
    for turns, opens, thinks in product(CONVERSATIONS, (False, True), ({}, {"enable_thinking": False})):
        assert ours(TYPICAL[name], turns, opens, thinks) == theirs(TYPICAL[name], turns, opens, thinks), turns


_REAL = templates(fetches=False)
"""Real chat templates, where the vocabularies' package has been fetched."""
_SAMPLE = ("Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-V3.1", "ibm-granite-granite-4.0")


@pytest.mark.parametrize("name", [name if name in _SAMPLE else pytest.param(name, marks=long) for name in _REAL])
def test_real_templates(name: str) -> None:
    for turns in CONVERSATIONS:
        assert ours(_REAL[name], turns, True, {}) == theirs(_REAL[name], turns, True, {}), turns
    if name in _SAMPLE:
        assert ours(_REAL[name], [SYSTEM, {"role": "user", "content": "hi"}], True, {}) is not None


@pytest.mark.parametrize("name", REFUSING)
def test_what_is_refused(name: str) -> None:
    assert ours(REFUSING[name], [USER], True, {}) == theirs(REFUSING[name], [USER], True, {})


def test_enough_of_the_templates_do_render() -> None:
    rendered = [name for name in TYPICAL if ours(TYPICAL[name], [USER, THOUGHT, USER], True, {}) is not None]
    assert rendered == list(TYPICAL)
    assert [name for name in REFUSING if ours(REFUSING[name], [USER], True, {}) is None] != []
