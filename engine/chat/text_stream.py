"""Token ids in, text out: whole characters only, thinking told from answer, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream

from engine.chat.thinking_marks import START, Section, ThinkingFormat, held_back

_CONTEXT_TOK = 32
"""Tokens before a continued answer that the decoding of its first characters may depend on."""


class TextStream:
    """The text of one answer. Stop strings end the answer, never the thinking."""

    def __init__(
        self,
        tokenizer: Any,
        stop: Sequence[str] = (),
        thinking: ThinkingFormat | None = None,
        begins: str = START,
        before: Sequence[int] = (),
    ) -> None:
        """`begins` says where the text stands, `before` what was written of it already and is not said again."""
        self._decoder = _Decoder(tokenizer, thinking.marks if thinking is not None else ())
        for token in before[-_CONTEXT_TOK:]:
            self._decoder.step(token)
        self._splitter = thinking.splitter(begins) if thinking is not None else None
        self._stop = _StopStrings(stop)

    @property
    def is_stopped(self) -> bool:
        """A stop string was met."""
        return self._stop.is_met

    @property
    def is_thinking(self) -> bool:
        """The text stands within the thinking."""
        return self._splitter is not None and self._splitter.is_thinking

    def push(self, token: int) -> list[Section]:
        """What is certain after this token; may be empty."""
        piece = self._decoder.step(token)
        if self._splitter is None:
            return self._until_stop([Section(piece, is_thinking=False)])
        return self._until_stop(self._splitter.push(piece))

    def finish(self) -> list[Section]:
        """What was held back."""
        sections = [] if self._splitter is None or self.is_stopped else self._until_stop(self._splitter.finish())
        return _with_text([*sections, Section(self._stop.finish(), is_thinking=False)])

    def _until_stop(self, sections: list[Section]) -> list[Section]:
        shown = []
        for section in sections:
            shown.append(section if section.is_thinking else Section(self._stop.push(section.text), is_thinking=False))
            if self.is_stopped:
                break
        return _with_text(shown)


def _with_text(sections: list[Section]) -> list[Section]:
    return [section for section in sections if section.text]


class _Decoder:
    """Ids to text, a character as soon as it is whole. Special tokens are no text, but for `marks`."""

    def __init__(self, tokenizer: Any, marks: Sequence[str]) -> None:
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._stream: Any = DecodeStream(skip_special_tokens=True) if self._backend is not None else None
        self._slow = _SlowDecodeStream(tokenizer)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._marks = {
            number: token.content
            for number, token in added.items()
            if token.special and any(token.content in mark for mark in marks)
        }

    def step(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        if token in self._marks:
            return str(self._marks[token])
        piece: str | None = (
            self._stream.step(self._backend, token) if self._stream is not None else self._slow.step(token)
        )
        return piece or ""


class _SlowDecodeStream:
    """What `DecodeStream` does, for a tokenizer that is not backed by the tokenizers library: decodes the last tokens
    with and without the new one, and says the difference."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._num_said = 0
        """Of `_ids`, the tokens whose text was said."""

    def step(self, token: int) -> str:
        """The text that became certain with this token; may be empty."""
        self._ids.append(token)
        said = self._decode(self._ids[: self._num_said])
        text = self._decode(self._ids)
        if len(text) <= len(said) or text.endswith("�"):
            return ""
        self._ids = self._ids[self._num_said :]
        self._num_said = len(self._ids)
        return text[len(said) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""


class _StopStrings:
    """Holds back what could become a stop string, and everything from one on."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [text for text in stop if text]
        self._held = ""
        self.is_met = False

    def push(self, piece: str) -> str:
        """The text that is certain after this piece; may be empty."""
        if not self._stop:
            return piece
        self._held += piece
        found = [(at + len(text), at) for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self.is_met = True
            _, start = min(found)  # the one complete first, so that it does not matter how tokens cut the text
            text, self._held = self._held[:start], ""
            return text
        certain = len(self._held) - held_back(self._held, self._stop)
        text, self._held = self._held[:certain], self._held[certain:]
        return text

    def finish(self) -> str:
        """What was held back and did not become a stop string."""
        text, self._held = self._held, ""
        return "" if self.is_met else text
