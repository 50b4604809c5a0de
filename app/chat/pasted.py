"""Long pasted texts stand in the prompt as a short mark; what is sent is whole."""

from __future__ import annotations

import re

LONG_LINES, LONG_CHARACTERS = 20, 2000
"""A text of more is put in as a mark."""

_MARK = re.compile(r"\[pasted (?:#\d+: )?[\d,]+ (?:lines|characters)\]")


class PastedTexts:
    """The long texts that were pasted into one prompt, by their marks."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shorten(self, text: str) -> str:
        """`text`, or a mark in its place."""
        num_lines = text.count("\n") + 1
        if num_lines <= LONG_LINES and len(text) <= LONG_CHARACTERS:
            return text
        size = f"{num_lines:,} lines" if num_lines > LONG_LINES else f"{len(text):,} characters"
        mark = f"[pasted {size}]"
        number = 2
        while self._texts.get(mark, text) != text:
            mark, number = f"[pasted #{number}: {size}]", number + 1
        self._texts[mark] = text
        return mark

    def whole(self, text: str) -> str:
        """`text` with what its marks stand for."""
        return _MARK.sub(lambda match: self._texts.get(match[0], match[0]), text) if self._texts else text

    def mark_before(self, line: str) -> int:
        """The length of the mark that `line` ends with; 0: it ends with none."""
        return next((len(mark) for mark in self._texts if line.endswith(mark)), 0)
