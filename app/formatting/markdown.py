"""Markdown of answers as it is read: one parser for everyone, its plain text, and its blocks of code.

Raw HTML is text here (models write tags that must be seen), and a line end stays one (models write verse and lists).
"""

from __future__ import annotations

from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

FIRST_CODE = "first_code"
"""In the environment of a parse: the number of the first block of code, where the text is a part of an answer."""

_CODE = ("fence", "code_block")


class CodeBlock(NamedTuple):
    """A block of code of an answer."""

    number: int
    """Its place among the answer's blocks, from 1."""
    language: str
    """As the fence names it; empty: it names none."""
    text: str
    """Without the last line end."""


def parser() -> MarkdownIt:
    """The parser of answers. Each block of code has its number in its token's `meta`."""
    markdown_it = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    markdown_it.core.ruler.push("keep_line_ends", _keep_line_ends)
    markdown_it.core.ruler.push("number_code", _number_code)
    return markdown_it


def code_tokens(tokens: list[Token]) -> list[Token]:
    """The tokens that are blocks of code, in order."""
    return [token for token in tokens if token.type in _CODE]


def code_blocks(text: str) -> list[CodeBlock]:
    """The blocks of code of an answer, in order."""
    return [
        CodeBlock(token.meta["number"], language_of(token.info), token.content.rstrip("\n"))
        for token in code_tokens(parser().parse(text))
    ]


def language_of(info: str) -> str:
    """The language that the first line of a fence names; empty: it names none."""
    return info.strip().partition(" ")[0]


def plain_text(tokens: list[Token]) -> str:
    """What is read of an answer: without marks, a line for every line and block."""
    return "\n".join(_plain(token) for token in tokens if token.type in ("inline", *_CODE))


def _plain(token: Token) -> str:
    if token.type != "inline":
        return token.content
    breaks = ("softbreak", "hardbreak")
    return "".join("\n" if child.type in breaks else child.content for child in token.children or ())


def _keep_line_ends(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


def _number_code(state: StateCore) -> None:
    for number, token in enumerate(code_tokens(state.tokens), state.env.get(FIRST_CODE, 1)):
        token.meta["number"] = number
