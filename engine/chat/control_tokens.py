"""Which strings of a tokenizer steer a model, and how the same strings in what people write are kept from it.

Characters of such a string in a message are replaced by characters of the last private plane of Unicode before the chat
template sees them, and put back when the rendered text is encoded: templates pass them on as they are, cut, strip and
join them like any other text, and cannot make a control token of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

_HIDDEN_PLANE, _PLANE_CHARS = 0x100000, 0xFFFE
_HIDDEN = re.compile(f"([{chr(_HIDDEN_PLANE)}-{chr(_HIDDEN_PLANE + _PLANE_CHARS - 1)}]+)")
_REPLACEMENT = "�"
_SHORTEST_MARK = 3
_HTML_TAG = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|tr|t[hd]|h[1-6]|blockquote|[bius]|su[bp]|strong|em|code)>"
)
"""Gemma has tokens of them, and its texts do mean those."""


class ControlTokens:
    """Of one tokenizer with one chat template."""

    def __init__(self, tokenizer: Any, template: str, marks: Sequence[str]) -> None:
        """`marks`: what a model's thinking is marked by, whether or not there are tokens of it."""
        added = getattr(tokenizer, "added_tokens_decoder", {})
        unknown = getattr(tokenizer, "unk_token_id", None)
        control = {number: token.content for number, token in added.items() if _is_control(token, template)}
        self.ids = frozenset(control) - {unknown}
        """Those that a message's text never becomes. The token for unknown text is none of them."""
        strings = sorted({*control.values(), *marks}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, strings)) or "(?!)")
        ends = {char for string in strings for char in (string[0], string[-1])}
        self._end_chars = {char for char in ends if not char.isalnum() and not char.isspace()}

    def is_in(self, text: str) -> bool:
        """Whether a text has such a string."""
        return self._pattern.search(text) is not None

    def may_join(self, text: str) -> bool:
        """Whether a text has a character that such a string begins or ends with, so that it could become a part."""
        return bool(self._joining(text))

    def hide_strings(self, text: str) -> str:
        """`text` with such strings hidden."""
        return self._pattern.sub(lambda found: _hidden(found[0]), _HIDDEN.sub(_REPLACEMENT, text))

    def hide_ends(self, text: str) -> str:
        """`text` with such strings hidden, and every character that one begins or ends with."""
        text = self.hide_strings(text)
        return text.translate({ord(char): _hidden(char) for char in self._joining(text)})

    def _joining(self, text: str) -> set[str]:
        """Also those that a normalizer makes such characters of."""
        return {
            char
            for char in set(text)
            if char in self._end_chars
            or (ord(char) > 127 and not self._end_chars.isdisjoint(unicodedata.normalize("NFKC", char)))
        }


def split_hidden(text: str) -> list[tuple[str, bool]]:
    """The pieces of a text in their order, shown again, and whether each was hidden."""
    pieces = _HIDDEN.split(text)
    return [(_shown(piece) if i % 2 else piece, bool(i % 2)) for i, piece in enumerate(pieces) if piece]


def _hidden(text: str) -> str:
    return "".join(chr(ord(char) + _HIDDEN_PLANE) if ord(char) < _PLANE_CHARS else char for char in text)


def _shown(text: str) -> str:
    return "".join(chr(ord(char) - _HIDDEN_PLANE) for char in text)


def _is_control(token: Any, template: str) -> bool:
    """Special tokens, and others that look like marks. Spaces, HTML and letters are text, also where they are added."""
    text = str(token.content)
    if not text.strip().strip("▁"):
        return False
    looks_like_mark = len(text) >= _SHORTEST_MARK and not text[0].isalnum() and not text[-1].isalnum()
    is_html = _HTML_TAG.fullmatch(text) is not None and text not in template
    return bool(token.special) or (looks_like_mark and not is_html)
