"""The colours of code, as roles of the theme: the same while an answer is written and once it is finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from markdown_it.token import Token as MarkdownToken
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Comment, Keyword, Name, Number, Operator, String  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from app.formatting.markdown import language_of

ROLES: dict[Any, str] = {
    Comment: "quiet",
    Keyword: "primary",
    Operator: "quiet",
    Name.Function: "secondary",
    Name.Class: "secondary",
    Name.Builtin: "secondary",
    String: "success",
    Number: "accent",
}
"""Token types of the highlighter -> variables of the theme. What has none is in the colour of the text."""

CODE, CLICK = "code", "click"
"""Keys in the `meta` of a segment's style."""
COPY, SAVE = "copy", "save"
CLICKS = (COPY, SAVE)

_INDENT = "  "
_TAB_WIDTH = 4


class Piece(NamedTuple):
    """A part of a line of code in one colour."""

    role: str | None
    text: str


Line = tuple[Piece, ...]


def highlighted(code: str, language: str) -> list[Line]:
    """The lines of `code`, tabs expanded, with the role of each part; one plain part where nothing is highlighted."""
    code = code.expandtabs(_TAB_WIDTH)
    pieces = (
        Piece(_role(kind), part)
        for kind, text in _lexer(language).get_tokens(code)
        for part in text.splitlines(keepends=True)
    )
    lines: list[Line] = []
    line: list[Piece] = []
    for piece in pieces:
        line.append(piece._replace(text=piece.text.removesuffix("\n")))
        if piece.text.endswith("\n"):
            lines.append(_joined(line))
            line = []
    return [*lines, _joined(line)][: code.count("\n") + 1]  # the highlighter ends the last line, too


def highlighted_lines(token: MarkdownToken) -> list[Line]:
    """The lines of a block of code, kept with its token: they go when the answer's widget goes."""
    if "lines" not in token.meta:
        token.meta["lines"] = highlighted(token.content.rstrip("\n"), language_of(token.info))
    lines: list[Line] = token.meta["lines"]
    return lines


def suffix_of(language: str) -> str:
    """The usual end of a file's name in a language, such as `.py`; `.txt` where it is not known."""
    patterns: list[str] = _lexer(language).filenames
    return next((pattern[1:] for pattern in patterns if pattern[:2] == "*." and pattern[1:].count(".") == 1), ".txt")


def code_head(number: int, language: str, width: int, colours: Mapping[str, str] | None) -> list[Segment]:
    """The line above a block of code: its number and language, and at the right what a click does with it.

    Every segment's style has in its `meta` the number under CODE; those to click also what they do, under CLICK.
    """
    quiet = Style(color=colours["quiet"] if colours else None, meta={CODE: number})
    title = f"{_INDENT}{number} {language}".rstrip()
    links = " ".join(CLICKS)
    gap = width - cell_len(title) - len(links)
    if gap < len(_INDENT):
        return [Segment(title[: max(0, width)], quiet)]
    segments = [Segment(title + " " * gap, quiet)]
    for click in CLICKS:
        style = Style(color=colours["secondary"] if colours else None, meta={CODE: number, CLICK: click})
        segments += [Segment(click, style), Segment(" ", quiet)]
    return segments[:-1]


def code_segments(line: Line, width: int, colours: Mapping[str, str]) -> Iterator[list[Segment]]:
    """A line of code set in by two columns, folded into as many of `width` cells as it takes."""
    styles = (Style(color=colours[piece.role]) if piece.role else None for piece in line)
    segments = [Segment(piece.text, style) for piece, style in zip(line, styles, strict=True)]
    for part in _folded(segments, max(1, width - len(_INDENT))):
        yield [Segment(_INDENT), *part]


class CodeLines:
    """A block of code as a renderable. `colours` None: not highlighted, which takes a tenth of the time."""

    def __init__(self, token: MarkdownToken, colours: Mapping[str, str] | None) -> None:
        self._token, self._colours = token, colours

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = code_head(
            self._token.meta.get("number", 1), language_of(self._token.info), options.max_width, self._colours
        )
        yield from (*head, Segment.line())
        if self._colours is None:
            width = max(1, options.max_width - len(_INDENT))
            for text in self._token.content.rstrip("\n").expandtabs(_TAB_WIDTH).split("\n"):
                for part in _folded([Segment(text)], width):
                    yield from (Segment(_INDENT), *part, Segment.line())
            return
        for line in highlighted_lines(self._token):
            for segments in code_segments(line, options.max_width, self._colours):
                yield from (*segments, Segment.line())


@cache
def _lexer(language: str) -> Lexer:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return get_lexer_by_name("text", stripnl=False)


@cache
def _role(kind: Any) -> str | None:
    return next((ROLES[parent] for parent in reversed(kind.split()) if parent in ROLES), None)


def _joined(pieces: Iterable[Piece]) -> Line:
    """Neighbours of one role as one piece."""
    runs = groupby(pieces, key=lambda piece: piece.role)
    joined = (Piece(role, "".join(piece.text for piece in run)) for role, run in runs)
    return tuple(piece for piece in joined if piece.text)


def _folded(line: list[Segment], width: int) -> list[list[Segment]]:
    """`line` in parts of at most `width` cells."""
    length = sum(cell_len(segment.text) for segment in line)
    if length <= width:
        return [line]
    cuts = [*range(width, length, width), length]
    return [list(part) for part in Segment.divide(line, cuts)]
