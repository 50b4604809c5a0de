"""From messages to ids and from ids to text."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import GenerationConfig, PreTrainedTokenizerFast

from engine.api import Message
from engine.conversation import TextStream, check_fits, common_prefix, encode, end_tokens
from engine.errors import ContextFullError, UnsupportedModelError


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, a few longer ones, and two special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: number for number, piece in enumerate([*alphabet, "ab", "abc", "bc", "Ġa"])}
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("Ġ", "a")]
    backend = Tokenizer(BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


TOKENIZER = byte_tokenizer()


def streamed(ids: list[int], stop: tuple[str, ...] = ()) -> tuple[str, list[str], bool]:
    """(whole text, its pieces, whether a stop string was met)."""
    stream, pieces = TextStream(TOKENIZER, stop), []
    for token in ids:
        pieces.append(stream.push(token))
        if stream.is_stopped:
            break
    pieces.append(stream.finish())
    return "".join(pieces), pieces, stream.is_stopped


def cut(text: str, stop: tuple[str, ...]) -> str:
    """The text before the stop string that is complete first."""
    ends = [(text.index(string) + len(string), text.index(string)) for string in stop if string and string in text]
    return text[: min(ends)[1]] if ends else text


def split_at_random(text: str, seed: int) -> list[int]:
    """Ids of the text, its token boundaries shifted about."""
    draw, ids, start = random.Random(seed), [], 0
    while start < len(text):
        end = start + draw.randint(1, 4)
        ids += TOKENIZER(text[start:end])["input_ids"]
        start = end
    return ids


@given(
    text=st.text("abc é€🙂", max_size=30),
    stop=st.lists(st.text("abc é🙂", min_size=1, max_size=4), max_size=3).map(tuple),
    seed=st.integers(0, 1000),
)
@settings(max_examples=400, deadline=None)
def test_streamed_text_is_the_whole_text_cut_at_the_first_stop(text: str, stop: tuple[str, ...], seed: int) -> None:
    whole, pieces, is_stopped = streamed(split_at_random(text, seed), stop)
    assert whole == cut(text, stop)
    assert is_stopped == any(string in text for string in stop)
    assert not any("�" in piece for piece in pieces)


def test_how_tokens_cut_the_text_does_not_matter() -> None:
    together, apart = TOKENIZER("abc")["input_ids"], [TOKENIZER(char)["input_ids"][0] for char in "abc"]
    assert (len(together), len(apart)) == (1, 3)
    assert streamed(together, ("abc", "b"))[0] == streamed(apart, ("abc", "b"))[0] == "a"


def test_text_is_not_held_back_without_need() -> None:
    ids = TOKENIZER("cacacab")["input_ids"]
    _, pieces, _ = streamed(ids, ("abx",))
    assert pieces[0] == "c"
    assert "".join(pieces[:-1]) == "cacac"
    assert pieces[-1] == "ab"


def test_an_empty_stop_string_stops_nothing() -> None:
    assert streamed(TOKENIZER("abc")["input_ids"], ("",)) == ("abc", ["abc", ""], False)


def test_characters_come_whole() -> None:
    ids = TOKENIZER("🙂")["input_ids"]
    assert len(ids) == 4
    assert streamed(ids)[1] == ["", "", "", "🙂", ""]


def test_special_tokens_are_no_text() -> None:
    ids = TOKENIZER("ab")["input_ids"]
    assert streamed([*ids, TOKENIZER.eos_token_id, *ids])[0] == "abab"


# -- messages


def with_template(template: str | None) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


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

    def __init__(self, eos_token_id: int | list[int] | None) -> None:
        self.eos_token_id = eos_token_id


@pytest.mark.parametrize(
    ("generation", "model", "tokenizer", "expected"),
    [
        ([1, 2], 3, 4, {1, 2, 3, 4}),
        (None, [5, 6], None, {5, 6}),
        (0, None, 0, {0}),
        (None, None, None, set()),
    ],
)
def test_every_end_token_counts(generation: Any, model: Any, tokenizer: Any, expected: set[int]) -> None:
    assert end_tokens(Holder(tokenizer), GenerationConfig(eos_token_id=generation), Holder(model)) == expected


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
