"""Token ids to text, piece by piece: the pieces together are the tokenizer's own decoding of all ids.

A tokenizer decodes a list of ids, and what a token is in text depends on its neighbours: a space before it, the bytes
of one character spread over several tokens, a run of byte tokens that is text only as a whole. So a window is decoded,
with and without its last tokens, and what the last tokens add is the next piece.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from engine.chat.thinking_marks import is_part_of_mark

_REPLACEMENT = "�"
"""What decoders write for bytes that are no character, or none yet."""
_BYTE_NAME = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_UNKNOWN, _BYTE, _TEXT = "unknown", "byte", "text"
"""Kinds of tokens: without a text, one byte of a text, any other."""
_CONTEXT_TOK = 32
"""Tokens before a continued text that the decoding of its first characters may depend on."""
_MOST_CHARACTER_TOK = 3
"""Byte tokens of a character that is not complete."""
_CLEANED_UP_CHARS = 4
"""The longest text that `clean_up_tokenization_spaces` replaces; each of them begins with a space."""


class StreamDecoder:
    """Decodes one text. Special tokens are no text, but for those that are part of one of `marks`."""

    def __init__(self, tokenizer: Any, marks: Sequence[str] = (), before: Sequence[int] = ()) -> None:
        """`before` are the ids that the text goes on from; their own text is not returned."""
        self._tokenizer = tokenizer
        self._names_of = getattr(tokenizer, "convert_ids_to_tokens", None)
        self._kinds: dict[int, str] = {}
        self._cleans_up = _cleans_up_spaces(tokenizer)
        self._special: dict[int, str] = {}
        for number, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
            if token.special:
                self._special[number] = token.content if is_part_of_mark(token.content, marks) else ""
        self._context: list[int] = []
        """Tokens whose text is certain and was returned; the decoding of the pending ones may depend on them."""
        self._context_text = ""
        self._pending: list[int] = []
        self._returned = ""
        """What was returned of the text of context and pending tokens."""
        self._whole: list[int] = []
        self._whole_text = ""
        """Every token, and all that was returned, for decoders to which a window is not enough."""
        self._needs_whole = self._cleans_up
        self._begin_after(before)

    def _begin_after(self, before: Sequence[int]) -> None:
        start = 0 if self._needs_whole else max(len(before) - _CONTEXT_TOK, 0)
        while start > 0 and self._kind(before[start]) == _BYTE:
            start -= 1
        for token in before[start:]:
            self.step(token)
        self._returned = self._whole_text = self._text().rstrip(_REPLACEMENT)

    def step(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        if token in self._special:
            mark = self._special[token]
            return self.finish() + mark if mark else ""
        kind = self._kind(token)
        if kind == _UNKNOWN:
            return ""
        self._pending.append(token)
        self._whole.append(token)
        if kind == _BYTE:
            return ""  # one byte that is no character turns the whole run of bytes into replacement characters
        text = self._text()
        certain = text[: len(text) - self._num_uncertain(text)]
        if self._needs_whole and not certain.startswith(self._returned):
            return ""
        piece = self._take(certain)
        if not self._needs_whole and certain == text and len(text) > len(self._context_text):
            self._context, self._pending = self._pending, []
            self._context_text = self._returned = self._decode(self._context)
        return piece

    def finish(self, goes_on: bool = False) -> str:
        """The rest of the text; `step` may still be called after it.

        With `goes_on` an incomplete character at the end is kept back, so that a continuation completes it.
        """
        text = self._text()
        rest = text[_common_length(self._returned, text) :]
        is_incomplete = len(rest) <= _MOST_CHARACTER_TOK and not rest.strip(_REPLACEMENT)
        return "" if goes_on and is_incomplete else self._take(text)

    def _text(self) -> str:
        """Of context and pending tokens. Where that does not begin with the text of the context, of all tokens."""
        if not self._needs_whole:
            text = self._decode([*self._context, *self._pending])
            if text.startswith(self._context_text):
                return text
            self._needs_whole = True
            self._returned = self._whole_text
        return self._decode(self._whole)

    def _take(self, text: str) -> str:
        """What `text` adds to the text that was returned."""
        piece = text[_common_length(self._returned, text) :]
        if piece:
            self._returned = text
            self._whole_text += piece
        return piece

    def _num_uncertain(self, text: str) -> int:
        """How many characters at the end of `text` the next token may change."""
        if text.endswith(_REPLACEMENT):
            return 1
        end = text[-_CLEANED_UP_CHARS:]
        return len(end) - end.find(" ") if self._cleans_up and " " in end else 0

    def _kind(self, token: int) -> str:
        """Models have ids that no vocabulary knows; some tokenizers raise on them, and others ignore them."""
        kind = self._kinds.get(token)
        if kind is None:
            kind = self._kinds[token] = self._find_kind(int(token))
        return kind

    def _find_kind(self, token: int) -> str:
        try:
            name = self._names_of(token) if self._names_of is not None else ""
            self._decode([token])
        except Exception:  # noqa: BLE001 - tokenizers raise whatever their Python does
            return _UNKNOWN
        if name is None:
            return _UNKNOWN
        return _BYTE if _BYTE_NAME.fullmatch(str(name)) else _TEXT

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""


def _common_length(first: str, second: str) -> int:
    """How many characters two texts have in common at their beginning."""
    if second.startswith(first):
        return len(first)
    return next((at for at, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), len(second))


def _cleans_up_spaces(tokenizer: Any) -> bool:
    """Whether decoding removes spaces before punctuation; the library does not for BPE, unless forced to."""
    if not getattr(tokenizer, "clean_up_tokenization_spaces", False):
        return False
    backend = getattr(tokenizer, "backend_tokenizer", None)
    is_bpe = backend is not None and type(backend.model).__name__ == "BPE"
    return not is_bpe or bool(
        getattr(tokenizer, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", False)
    )
