"""The pieces of a streamed text are the tokenizer's own decoding of all ids, for any ids."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from engine.chat.stream_decoder import StreamDecoder
from tests.unit.engine.chat.tokenizer_zoo import ZOO, llama_like, metaspace

TOKENIZERS: dict[str, Any] = {**ZOO, "slow": ByT5Tokenizer()}


def pieces(decoder: StreamDecoder, ids: list[int]) -> list[str]:
    return [*(decoder.step(token) for token in ids), decoder.finish()]


def ids_of(tokenizer: Any) -> st.SearchStrategy[list[int]]:
    """Any ids, runs of bytes among them, and some that no vocabulary has."""
    size = len(tokenizer)
    any_id = st.integers(0, size - 1 if isinstance(tokenizer, ByT5Tokenizer) else size + 3)
    byte_ids = [number for number in range(size) if str(tokenizer.convert_ids_to_tokens(number)).startswith("<0x")]
    runs = [st.lists(any_id, max_size=8)]
    if byte_ids:
        runs.append(st.binary(max_size=6).map(lambda raw: [byte_ids[value] for value in raw]))
        runs.append(st.text("é€🙂\n", max_size=2).map(lambda text: [byte_ids[value] for value in text.encode()]))
    return st.lists(st.one_of(runs), max_size=5).map(lambda parts: [token for part in parts for token in part])


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_pieces_are_the_whole(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(ids_of(tokenizer))
    assert "".join(pieces(StreamDecoder(tokenizer), ids)) == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", [name for name in TOKENIZERS if name != "repeating"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_continued_text_goes_on_from_what_was_there(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    before, ids = data.draw(ids_of(tokenizer)), data.draw(ids_of(tokenizer))
    was = tokenizer.decode(before, skip_special_tokens=True).rstrip("�")
    whole = tokenizer.decode(before + ids, skip_special_tokens=True)
    num_common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(was, whole, strict=False)))
    assert "".join(pieces(StreamDecoder(tokenizer, before=before), ids)) == whole[num_common:]


@pytest.mark.parametrize("build", [llama_like, metaspace])
def test_byte_tokens_that_are_no_character_do_not_end_the_answer(build: Any) -> None:
    tokenizer = build()
    ids = tokenizer.convert_tokens_to_ids(["a", "<0x0A>", "<0xE2>", "é", "b"])
    assert "".join(pieces(StreamDecoder(tokenizer), ids)) == tokenizer.decode(ids) == "a��éb"


def test_text_comes_as_soon_as_it_is_certain() -> None:
    tokenizer = llama_like()
    ids = tokenizer.convert_tokens_to_ids(["▁a", "b", "<0xE2>", "<0x82>", "<0xAC>", "▁ab", "<0x0A>"])
    assert pieces(StreamDecoder(tokenizer), ids) == ["a", "b", "", "", "", "€ ab", "", "\n"]


def test_an_incomplete_character_waits_for_the_continuation() -> None:
    tokenizer = ZOO["byte level"]
    ids = tokenizer("ab🙂c")["input_ids"]
    decoder = StreamDecoder(tokenizer)
    first = "".join(decoder.step(token) for token in ids[:3]) + decoder.finish(goes_on=True)
    rest = "".join(decoder.step(token) for token in ids[3:]) + decoder.finish(goes_on=True)
    assert (first, rest) == ("ab", "🙂c")
    decoder = StreamDecoder(tokenizer)
    assert "".join([*(decoder.step(token) for token in ids[:3]), decoder.finish()]) == "ab�"


def test_an_id_that_the_tokenizer_raises_on_has_no_text() -> None:
    ids = ByT5Tokenizer()("ab", add_special_tokens=False)["input_ids"]
    assert "".join(pieces(StreamDecoder(ByT5Tokenizer()), [ids[0], 5000, 384, ids[1]])) == "ab"


def test_what_was_told_twice_is_not_told_again() -> None:
    tokenizer = ZOO["byte level"]
    ids = tokenizer("ab🙂")["input_ids"]
    decoder = StreamDecoder(tokenizer)
    told = [decoder.step(token) for token in ids] + [decoder.finish(), decoder.finish()]
    assert "".join(told) == "ab🙂"
