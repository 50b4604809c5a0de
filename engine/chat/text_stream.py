"""Token ids in, text out: whole characters only, thinking told from answer, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.chat.stream_decoder import StreamDecoder
from engine.chat.thinking_marks import START, Section, ThinkingFormat, held_back


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
        self._decoder = StreamDecoder(tokenizer, thinking.marks if thinking is not None else (), before)
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
        return self._read(self._decoder.step(token))

    def finish(self, goes_on: bool = False) -> list[Section]:
        """What was held back. `goes_on`: the text may be continued, and an incomplete character waits for that."""
        if self.is_stopped:
            return []
        sections = self._read(self._decoder.finish(goes_on))
        if self._splitter is not None and not self.is_stopped:
            sections += self._until_stop(self._splitter.finish())
        return _with_text([*sections, Section(self._stop.finish(), is_thinking=False)])

    def _read(self, piece: str) -> list[Section]:
        if self._splitter is None:
            return self._until_stop([Section(piece, is_thinking=False)])
        return self._until_stop(self._splitter.push(piece))

    def _until_stop(self, sections: list[Section]) -> list[Section]:
        shown = []
        for section in sections:
            shown.append(section if section.is_thinking else Section(self._stop.push(section.text), is_thinking=False))
            if self.is_stopped:
                break
        return _with_text(shown)


def _with_text(sections: list[Section]) -> list[Section]:
    return [section for section in sections if section.text]


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
