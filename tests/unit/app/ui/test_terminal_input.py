"""Bytes from a terminal become text, and what the terminal itself says is not typed."""

from __future__ import annotations

import pytest

from app.ui.terminal_input import InputDecoder, typed_text

COLOUR = b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\"
COLOUR_BY_BELL = b"\x1b]11;rgba:1e1e/1e1e/2e2e/ffff\x07"
ATTRIBUTES = b"\x1b[?62;22c"


@pytest.mark.parametrize("answer", [COLOUR, COLOUR_BY_BELL, ATTRIBUTES, COLOUR + ATTRIBUTES])
def test_a_late_answer_is_no_text_wherever_it_is_cut(answer: bytes) -> None:
    for cut in range(2, len(answer) + 1):
        decoder = InputDecoder()
        assert decoder.decode(b"a" + answer[:cut]) + decoder.decode(answer[cut:] + b"b") == "ab"


def test_bytes_that_are_no_text_are_replaced() -> None:
    decoder = InputDecoder()
    assert decoder.decode(b"caf\xe9 ") == "caf\ufffd "
    assert decoder.decode("é".encode()[:1]) + decoder.decode("é".encode()[1:]) == "é"


@pytest.mark.parametrize(
    "keys", ["\x1b", "\x1b]", "\x1b[A", "\x1b[?2026;2$y", "\x1b[200~\x1b]0;x\x07\x1b[201~", "\x1b[I"]
)
def test_keys_pass(keys: str) -> None:
    decoder = InputDecoder()
    assert decoder.decode(keys.encode()) + decoder.release() == keys


def test_what_looks_like_an_answer_and_is_none_is_released() -> None:
    decoder = InputDecoder()
    assert decoder.decode(b"\x1b]11;rgb:") == ""
    assert decoder.release() == "\x1b]11;rgb:"
    assert decoder.decode(b"x") == "x"


def test_what_was_typed_among_the_answers() -> None:
    assert typed_text(b"cap" + COLOUR + "itä".encode() + ATTRIBUTES + b"l?\x1b[A\x7f\n") == "capitäl?"
