"""Text made safe: what comes from a model, a file or a user is shown, never obeyed, and is always valid Unicode."""

from __future__ import annotations

import json
import re

_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction in which text is shown."""
_PICTURES: dict[int, int | str] = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_PICTURES |= {0x7F: 0x2421}
_PICTURES |= {code: f"‹{code:02X}›" for code in range(0x80, 0xA0)}
_PICTURES |= {code: f"‹{code:04X}›" for code in _DIRECTIONS}
_PICTURES |= dict.fromkeys(range(0xD800, 0xE000), "�")

_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f\ud800-\udfff{''.join(map(chr, _DIRECTIONS))}]")
_OBEYED = re.compile(f"[\x00-\x1f\x7f-\x9f{''.join(map(chr, _DIRECTIONS))}]")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with control, text-direction and lone surrogate characters made visible; line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def is_obeyed(text: str) -> bool:
    """Whether a terminal would do something at a character of `text` other than show it, or could not be sent it."""
    return _OBEYED.search(text) is not None or _LONE_SURROGATES.search(text) is not None


def without_obeyed(text: str) -> str:
    """`text` of one line, as wide as before: without what a terminal obeys, U+FFFD for lone surrogates."""
    return whole(_OBEYED.sub("", text))


def json_text(value: object, indent: int | None = 2) -> str:
    """JSON in which everything that a terminal might obey is escaped; other scripts stay readable."""
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


def whole(text: str) -> str:
    """`text` with U+FFFD for lone surrogates, which no tokenizer, database or file takes.

    Python reads bytes of the command line that are no text as such; a path must keep them.
    """
    return _LONE_SURROGATES.sub("\ufffd", text)


def text_of(content: bytes) -> str:
    """Bytes of a pipe or a file as text: UTF-8, with U+FFFD for what is none, and without a byte order mark."""
    return content.decode("utf-8-sig", "replace")
