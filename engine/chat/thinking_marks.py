"""Where a model's thinking begins and ends in what it writes, and the splitting of it from the answer.

Sources: the reasoning parsers that vLLM and SGLang document (tags, by model series), and OpenAI's description of the
harmony response format (channels: analysis is thinking, final and commentary are for the user).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

START, THINKING, MID_THINKING, ANSWER = "start", "thinking", "mid-thinking", "answer"
"""Where a text stands when its first token is written: nothing yet, thinking just opened, thinking under way, answer
under way."""

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
)
_CHANNEL, _MESSAGE, _BEGIN, _END = "<|channel|>", "<|message|>", "<|start|>", "<|end|>"
_HARMONY_MARKS = (_CHANNEL, _MESSAGE, _BEGIN, _END, "<|return|>", "<|call|>", "<|constrain|>")


class Section(NamedTuple):
    """A piece of text, and what it belongs to."""

    text: str
    is_thinking: bool


class Splitter(Protocol):
    """Tells thinking from answer in text that arrives piece by piece, cut anywhere."""

    @property
    def is_thinking(self) -> bool:
        """Whether the text now stands within the thinking."""
        ...

    def push(self, text: str) -> list[Section]:
        """What is certain after this piece; marks are in no section."""
        ...

    def finish(self) -> list[Section]:
        """What was held back."""
        ...


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """How one model marks its thinking."""

    opening: str
    """The text that thinking begins with."""
    closing: str
    marks: tuple[str, ...]
    """Every mark, some of which the tokenizer may hold for special tokens and leave out of its text."""

    @property
    def is_harmony(self) -> bool:
        """Channels instead of a pair of tags."""
        return _MESSAGE in self.marks

    def splitter(self, begins: str) -> Splitter:
        """For a text that stands at `begins`."""
        return ChannelSplitter(begins) if self.is_harmony else TagSplitter(self.opening, self.closing, begins)

    def begins(self, prompt_end: str) -> str:
        """Where an answer stands whose prompt ends like this: some templates open the thinking themselves."""
        return THINKING if prompt_end.rstrip().endswith(self.opening) else START


HARMONY = ThinkingFormat(f"{_CHANNEL}analysis{_MESSAGE}", _END, _HARMONY_MARKS)


def find_format(tokenizer: Any) -> ThinkingFormat | None:
    """The marks that the chat template writes, or else that the vocabulary has tokens for; None: no thinking."""
    template = getattr(tokenizer, "chat_template", None) or ""
    added = {token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    if {_CHANNEL, _MESSAGE} <= added:
        return HARMONY
    text = "".join(template.values()) if isinstance(template, dict) else str(template)
    written = [pair for pair in _TAGS if pair[0] in text or pair[1] in text]
    known = [pair for pair in _TAGS if set(pair) <= added]
    for opening, closing in (*written, *known):
        return ThinkingFormat(opening, closing, (opening, closing))
    return None


def held_back(text: str, marks: Sequence[str]) -> int:
    """How many characters at the end of `text` could be the beginning of a mark."""
    longest = max(map(len, marks)) - 1
    for count in range(min(longest, len(text)), 0, -1):
        if any(mark.startswith(text[-count:]) for mark in marks):
            return count
    return 0


def is_part_of_mark(token: str, marks: Sequence[str]) -> bool:
    """Whether a token's text is a mark, or a piece of one."""
    return any(token in mark for mark in marks)


class _Paragraphs:
    """Thinking as it is shown: no white space around it, a blank line between two parts of it."""

    def __init__(self, begins: str) -> None:
        self._has_text = begins == MID_THINKING
        self._is_at_start = not self._has_text
        self._blank = ""

    def begin(self) -> None:
        """Another part begins."""
        self._is_at_start, self._blank = True, ""

    def add(self, text: str) -> list[Section]:
        """The text of a part, white space at its end held back until more of it comes."""
        text = (self._blank + text).lstrip() if self._is_at_start else self._blank + text
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        if not shown:
            return []
        if self._is_at_start and self._has_text:
            shown = "\n\n" + shown
        self._has_text, self._is_at_start = True, False
        return [Section(shown, is_thinking=True)]


class TagSplitter:
    """A pair of tags. Thinking comes before the answer: once that has begun, a tag is text like any other."""

    def __init__(self, opening: str, closing: str, begins: str) -> None:
        self._opening, self._closing = opening, closing
        self._place = THINKING if begins == MID_THINKING else begins
        self._held, self._has_thought = "", False
        self._thinking = _Paragraphs(begins)

    @property
    def is_thinking(self) -> bool:
        return self._place == THINKING

    def push(self, text: str) -> list[Section]:
        self._held += text
        sections: list[Section] = []
        while self._place != ANSWER:
            place = self._place
            sections += self._read_thinking() if place == THINKING else self._read_start()
            if self._place == place:
                return sections
        text, self._held = self._held, ""
        return [*sections, Section(text, is_thinking=False)] if text else sections

    def _read_start(self) -> list[Section]:
        """Nothing but white space so far: either an opening tag comes, or the answer."""
        text = self._held.lstrip()
        if text.startswith(self._opening):
            self._place, self._held = THINKING, text[len(self._opening) :]
            self._thinking.begin()
        elif not self._opening.startswith(text):
            self._place = ANSWER
            self._held = text if self._has_thought else self._held
        return []

    def _read_thinking(self) -> list[Section]:
        self._has_thought = True
        at = self._held.find(self._closing)
        if at >= 0:
            text, self._held, self._place = self._held[:at], self._held[at + len(self._closing) :], START
        else:
            certain = len(self._held) - held_back(self._held, (self._closing,))
            text, self._held = self._held[:certain], self._held[certain:]
        return self._thinking.add(text)

    def finish(self) -> list[Section]:
        text, self._held = self._held, ""
        if self._place == THINKING:
            return self._thinking.add(text)
        text = text.lstrip() if self._has_thought else text
        if not text:
            return []
        self._place = ANSWER
        return [Section(text, is_thinking=False)]


class ChannelSplitter:
    """Harmony: messages with a header that names a channel. Headers are no text; without any, all text is answer."""

    def __init__(self, begins: str) -> None:
        self._held = ""
        self._header: str | None = None
        """The header that is being read; None: within a message."""
        self._is_thinking, self._has_answered = begins in (THINKING, MID_THINKING), begins == ANSWER
        self._is_new_part = False
        self._thinking = _Paragraphs(begins)

    @property
    def is_thinking(self) -> bool:
        return self._is_thinking

    def push(self, text: str) -> list[Section]:
        self._held += text
        sections: list[Section] = []
        while True:
            found = [(at, mark) for mark in _HARMONY_MARKS if (at := self._held.find(mark)) >= 0]
            if not found:
                break
            at, mark = min(found)
            sections += self._read_text(self._held[:at])
            self._held = self._held[at + len(mark) :]
            self._read_mark(mark)
        certain = len(self._held) - held_back(self._held, _HARMONY_MARKS)
        sections += self._read_text(self._held[:certain])
        self._held = self._held[certain:]
        return sections

    def _read_text(self, text: str) -> list[Section]:
        if self._header is not None:
            self._header += text
            return []
        if self._is_thinking:
            return self._thinking.add(text)
        if text and self._is_new_part and self._has_answered:
            text = "\n\n" + text
        if text:
            self._is_new_part, self._has_answered = False, True
        return [Section(text, is_thinking=False)] if text else []

    def _read_mark(self, mark: str) -> None:
        if mark == _MESSAGE:
            header = self._header or ""
            self._is_thinking = _CHANNEL + "analysis" in header or "to=" in header
            self._is_new_part, self._header = True, None
            self._thinking.begin()
        elif mark == _END:
            self._is_thinking, self._header = False, None
        elif mark == _BEGIN:
            self._header = ""
        else:
            self._header = (self._header or "") + mark

    def finish(self) -> list[Section]:
        text, self._held = self._held, ""
        return self._read_text(text)
