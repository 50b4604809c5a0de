"""The colours of code, as roles of the theme: the same while an answer is written and once it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token  # type: ignore[import-untyped]
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax

ROLES: dict[Any, str] = {
    Token: "foreground",
    Comment: "quiet",
    Keyword: "primary",
    Operator: "quiet",
    Name.Function: "secondary",
    Name.Class: "secondary",
    Name.Builtin: "secondary",
    String: "success",
    Number: "accent",
}
"""Token types of the highlighter -> variables of the theme."""

_INDENT = "  "


class CodeLines:
    """A block of code, set in by two columns; lines that are too long are folded. `colours` None: not highlighted."""

    def __init__(self, code: str, language: str, colours: Mapping[str, str] | None) -> None:
        self._code, self._language = code, language
        self._colours = None if colours is None else tuple(colours[role] for role in ROLES.values())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - len(_INDENT))
        for line in self._lines():
            for part in _folded(line, width):
                yield Segment(_INDENT)
                yield from part
                yield Segment.line()

    def _lines(self) -> tuple[tuple[Segment, ...], ...]:
        if self._colours is None:
            return tuple((Segment(line),) for line in self._code.expandtabs(4).split("\n"))
        return _highlighted(self._code, self._language, self._colours)


@lru_cache(maxsize=128)
def _highlighted(code: str, language: str, colours: tuple[str, ...]) -> tuple[tuple[Segment, ...], ...]:
    """The lines of `code` in colours, one for each of ROLES. Finding them costs some 20 ms for 60 lines."""
    theme = ANSISyntaxTheme({token: Style(color=colour) for token, colour in zip(ROLES, colours, strict=True)})
    text = Syntax("", language or "text", theme=theme).highlight(code.expandtabs(4))
    lines = text.split("\n", allow_blank=True)[: code.count("\n") + 1]  # the highlighter ends the last line, too
    console = Console(force_terminal=True, color_system="truecolor")
    return tuple(tuple(segment for segment in line.render(console) if segment.text) for line in lines)


def _folded(line: tuple[Segment, ...], width: int) -> list[tuple[Segment, ...]]:
    """`line` in parts of at most `width` cells."""
    length = sum(cell_len(segment.text) for segment in line)
    if length <= width:
        return [line]
    cuts = [*range(width, length, width), length]
    return [tuple(part) for part in Segment.divide(line, cuts)]
