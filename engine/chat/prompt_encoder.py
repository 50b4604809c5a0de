"""From a rendered prompt to token ids, so that control tokens come from the template alone.

Where no message holds a control string the ids are the library's own for the whole text. Elsewhere those strings are
encoded apart from the rest, by the tokenizer's pipeline without its added tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.chat.control_tokens import ControlTokens, split_hidden
from engine.errors import CheckpointError

_BEFORE = ("\n", ".", "a")
"""Texts to encode a piece behind, so that it is not taken for the beginning of a text, which some tokenizers put a
space before; the first whose own ids stay as they are is used."""

Render = Callable[[Callable[[str], str]], str]
"""Renders a prompt; every text of a message goes through the given function first."""


class PromptEncoder:
    """For one tokenizer. Changes nothing in it."""

    def __init__(self, tokenizer: Any, control: ControlTokens) -> None:
        self._tokenizer, self._control = tokenizer, control
        self._backend = getattr(tokenizer, "backend_tokenizer", None)

    def encode(self, render: Render, texts: Sequence[str], adds_special: bool = False) -> list[int]:
        """The ids of a prompt with the `texts` of its messages; with `adds_special` as the tokenizer begins any text.

        Raises CheckpointError when the tokenizer cannot encode it, and what `render` raises.
        """
        control = self._control
        if any(map(control.is_in, texts)):
            ids = self._pieces(render(control.hide_strings), adds_special)
        else:
            ids = self._ids(render(lambda text: text), adds_special)
        if not any(map(control.may_join, texts)):
            return ids
        # A text may become part of a control string where the template joins it to others, or the tokenizer
        # normalizes it. There are as many control tokens as the template writes, or something of that kind happened.
        safe = self._pieces(render(control.hide_ends), adds_special)
        return ids if self._num_control(ids) == self._num_control(safe) else safe

    def _num_control(self, ids: Sequence[int]) -> Counter[int]:
        return Counter(token for token in ids if token in self._control.ids)

    def _pieces(self, text: str, adds_special: bool) -> list[int]:
        head, tail = self._frame() if adds_special else ([], [])
        ids = list(head)
        for number, (piece, was_hidden) in enumerate(split_hidden(text)):
            encode = self._without_control if was_hidden else self._ids
            ids += encode(piece) if number == 0 else _behind_text(encode, piece)
        return ids + tail

    def _without_control(self, text: str) -> list[int]:
        """In smaller pieces, where the vocabulary has a control token as a piece of text too."""
        ids = self._without_added(text)
        if self._control.ids.isdisjoint(ids):
            return ids
        middle = len(text) // 2
        return self._without_control(text[:middle]) + self._without_control(text[middle:]) if middle else []

    def _without_added(self, text: str) -> list[int]:
        """By the model of the tokenizer alone: no added token is looked for, special or not."""
        if self._backend is None:
            return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        normalizer, splitter, model = self._backend.normalizer, self._backend.pre_tokenizer, self._backend.model
        with _naming_the_tokenizer(self._tokenizer):
            text = normalizer.normalize_str(text) if normalizer is not None else text
            words = [word for word, _ in splitter.pre_tokenize_str(text)] if splitter is not None else [text]
            return [token.id for word in words for token in model.tokenize(word)]

    def _ids(self, text: str, adds_special: bool = False) -> list[int]:
        with _naming_the_tokenizer(self._tokenizer):
            return list(self._tokenizer(text, add_special_tokens=adds_special)["input_ids"])

    def _frame(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer puts before and behind any text."""
        bare, framed = self._ids("a"), self._ids("a", adds_special=True)
        at = next((at for at in range(len(framed)) if framed[at : at + len(bare)] == bare), 0)
        return framed[:at], framed[at + len(bare) :]


def _behind_text(encode: Callable[[str], list[int]], piece: str) -> list[int]:
    for before in _BEFORE:
        head, ids = encode(before), encode(before + piece)
        if ids[: len(head)] == head:
            return ids[len(head) :]
    return encode(piece)


@contextmanager
def _naming_the_tokenizer(tokenizer: Any) -> Iterator[None]:
    """Turns what a tokenizer raises into a CheckpointError."""
    try:
        yield
    except Exception as error:  # tokenizers raise what their Rust and Python do
        name = getattr(tokenizer, "name_or_path", "") or "the model"
        raise CheckpointError(
            f"The tokenizer of {name} cannot encode the text: {str(error)[:300]}",
            "Its tokenizer.json is damaged, or has no token for unknown text; fetch the tokenizer files again.",
        ) from error
