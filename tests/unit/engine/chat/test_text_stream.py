"""Ids in, text out: whole characters, stop strings, thinking told from answer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from engine.chat.text_stream import TextStream
from engine.chat.thinking_marks import ANSWER, START, THINKING, Section, find_format
from tests.unit.engine.byte_tokenizer import (
    HARMONY,
    HARMONY_MARKS,
    OPENED,
    QWEN,
    SlowTokenizer,
    byte_tokenizer,
    with_template,
)

TOKENIZER = byte_tokenizer()


def joined(sections: list[Section]) -> str:
    return "".join(section.text for section in sections)


def streamed(ids: list[int], stop: tuple[str, ...] = (), tokenizer: Any = TOKENIZER) -> tuple[str, list[str], bool]:
    """(whole text, its pieces, whether a stop string was met)."""
    stream, pieces = TextStream(tokenizer, stop), []
    for token in ids:
        pieces.append(joined(stream.push(token)))
        if stream.is_stopped:
            break
    pieces.append(joined(stream.finish()))
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


@given(text=st.text("abc é€🙂", max_size=30), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_a_tokenizer_without_the_librarys_backend_streams_the_same(text: str, seed: int) -> None:
    ids = [*split_at_random(text, seed), int(TOKENIZER.eos_token_id or 0)]
    assert streamed(ids, tokenizer=SlowTokenizer()) == streamed(ids)


def test_an_answer_taken_up_in_the_middle_of_a_character() -> None:
    ids = TOKENIZER("ab🙂")["input_ids"]
    stream = TextStream(TOKENIZER, before=ids[:-1], begins=ANSWER)
    assert joined([*stream.push(ids[-1]), *stream.finish()]) == "🙂"


# -- thinking


def split(tokenizer: Any, text: str, begins: str = START, stop: tuple[str, ...] = ()) -> tuple[str, str]:
    """(thinking, answer) of a text that comes token by token."""
    marks = find_format(tokenizer)
    assert marks is not None
    stream, found = TextStream(tokenizer, stop, marks, begins), {True: "", False: ""}
    for token in tokenizer(text)["input_ids"]:
        for section in stream.push(token):
            found[section.is_thinking] += section.text
        if stream.is_stopped:
            break
    for section in stream.finish():
        found[section.is_thinking] += section.text
    return found[True], found[False]


WHOLE_TAGS = with_template(QWEN, added=("<think>", "</think>", "<|im_start|>", "<|im_end|>"))
SPECIAL_TAGS = with_template(QWEN, special=("<think>", "</think>"))
BARE_TAGS = with_template(QWEN)


@pytest.mark.parametrize("tokenizer", [WHOLE_TAGS, SPECIAL_TAGS, BARE_TAGS], ids=["tokens", "special", "pieces"])
@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>\nabc\n\nb\n</think>\n\nThe a.\n", "abc\n\nb", "The a.\n"),
        ("<think>\n\n</think>\n\na", "", "a"),
        ("<think>a</think> <think>b</think> c", "a\n\nb", "c"),
        (" a <think>b</think>", "", " a <think>b</think>"),
        ("a </think> b", "", "a </think> b"),
        ("<think>a </thin b", "a </thin b", ""),
        ("<think>a <b </think>c", "a <b", "c"),
        ("<thi", "", "<thi"),
        ("  ", "", "  "),
        ("", "", ""),
    ],
)
def test_a_pair_of_tags(tokenizer: Any, text: str, thinking: str, answer: str) -> None:
    assert split(tokenizer, text) == (thinking, answer)


def test_a_template_that_opens_the_thinking() -> None:
    tokenizer = with_template(OPENED)
    marks = find_format(tokenizer)
    assert marks is not None
    assert marks.begins("<|im_start|>assistant\n<think>\n") == THINKING
    assert marks.begins("<|im_start|>assistant\n") == START
    assert split(tokenizer, "a\n</think>\n\nb", THINKING) == ("a", "b")


CHANNELS = with_template(HARMONY, special=HARMONY_MARKS)
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        (f"{ANALYSIS}a b<|end|>{FINAL}The a.<|return|>", "a b", "The a."),
        (f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b<|end|>{FINAL}c", "a\n\nb", "c"),
        ("<|channel|>final<|message|> a ", "", " a "),
        (f"<|channel|>commentary<|message|>a<|end|>{FINAL}b", "", "a\n\nb"),
        (f"<|channel|>commentary to=f <|constrain|>json<|message|>{{}}<|call|>{FINAL}b", "{}", "b"),
        (f"{ANALYSIS}a", "a", ""),
        ("no channels at all", "", "no channels at all"),
    ],
)
def test_channels(text: str, thinking: str, answer: str) -> None:
    assert split(CHANNELS, text) == (thinking, answer)


@given(text=st.lists(st.sampled_from(["<think>", "</think>", "<|x|>", " ", "\n", "a", "<", "</t"]), max_size=12))
@settings(max_examples=300, deadline=None)
def test_how_the_text_is_cut_does_not_matter_to_the_splitting(text: list[str]) -> None:
    whole, (marks, cut) = "".join(text), (find_format(BARE_TAGS), find_format(BARE_TAGS))
    assert marks is not None
    assert cut is not None
    by_char, at_once = marks.splitter(START), cut.splitter(START)
    piecewise = [section for char in whole for section in by_char.push(char)] + by_char.finish()
    together = at_once.push(whole) + at_once.finish()
    for kind in (True, False):
        assert joined([s for s in piecewise if s.is_thinking == kind]) == joined(
            [s for s in together if s.is_thinking == kind]
        )


def test_a_stop_string_ends_the_answer_and_not_the_thinking() -> None:
    assert split(WHOLE_TAGS, "<think>abc</think>abc b", stop=("c b", "bc")) == ("abc", "a")


def test_a_model_without_marks_does_not_think() -> None:
    assert find_format(with_template("{{ messages[0].content }}")) is None
    assert find_format(byte_tokenizer()) is None


def test_a_slow_tokenizer_of_the_library_tells_thinking_too() -> None:
    slow = ByT5Tokenizer()
    slow.chat_template = QWEN
    marks, text = find_format(slow), "<think>hé</think>\n\n🙂 done"
    assert marks is not None
    stream, sections = TextStream(slow, thinking=marks), []
    for token in slow(text, add_special_tokens=False)["input_ids"]:
        sections += stream.push(token)
    sections += stream.finish()
    assert joined([section for section in sections if section.is_thinking]) == "hé"
    assert joined([section for section in sections if not section.is_thinking]) == "🙂 done"
