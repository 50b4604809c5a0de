"""How a file is named in a message: `@path`, or `@"a path with blanks"`, at the beginning of a word.

`@@` begins a word that only looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s@"]\S*))')
_BEGUN = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^\s@"]\S*)?)$')
_ESCAPED = re.compile(r'(?<!\S)@(@(?:"([^"\n]+)"|([^\s@"]\S*)))')


class Begun(NamedTuple):
    """A mention that is being typed, at the end of a text."""

    path: str
    length: int
    """Characters of the text that it takes, with the sign."""


def paths(text: str) -> list[str]:
    """What `text` names, in order, each once; whether it is there or not."""
    return list(dict.fromkeys(quoted or bare for quoted, bare in _MENTION.findall(text)))


def begun(text: str) -> Begun | None:
    """The mention that `text` ends with; None: it ends with none."""
    found = _BEGUN.search(text)
    return None if found is None else Begun(found[1] or found[2] or "", len(found[0]))


def written(path: str) -> str:
    """A path as a mention."""
    return f'@"{path}"' if re.search(r"\s", path) or path.startswith("@") else f"@{path}"


def unescaped(text: str, is_file: Callable[[str], bool]) -> str:
    """`text` as it is meant: with one sign where two stand before a file; others, as in `@@count`, stay."""
    return _ESCAPED.sub(lambda found: found[1] if is_file(found[2] or found[3]) else found[0], text)
