"""Markdown of answers: one parser for the live and the finished form, and how the finished form looks.

Raw HTML is text here (models write tags that must be seen), and a line end stays one (models write verse and lists).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from app.code_colours import finished_theme


def _keep_line_ends(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


def parser() -> MarkdownIt:
    """The parser of answers."""
    markdown_it = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    markdown_it.core.ruler.push("keep_line_ends", _keep_line_ends)
    return markdown_it


class _LeftHeading(Heading):
    """A heading without the box and the centring."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _PlainCodeBlock(CodeBlock):
    """Code set in by two columns, without blank lines around it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Padding(Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True), (0, 0, 0, 2))


class _DottedItem(ListItem):
    """A list item whose number has its dot."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        for place, part in enumerate(super().render_number(console, options, number, last_number)):
            if place == 0 and isinstance(part, Segment):
                yield Segment(f"{number}.".rjust(len(str(last_number)) + 1) + " ", part.style)
            else:
                yield part


class _PlainTable(TableElement):
    """A table without the blank lines of an outer edge."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.show_edge = False
            yield table


class FinishedMarkdown(Markdown):
    """A finished answer as one renderable."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCodeBlock,
        "code_block": _PlainCodeBlock,
        "list_item_open": _DottedItem,
        "table_open": _PlainTable,
    }

    def __init__(self, markup: str, variables: Mapping[str, str]) -> None:
        super().__init__("", code_theme=cast(str, finished_theme(variables)), hyperlinks=False)
        self.markup = markup
        self.parsed = parser().parse(markup)


def rich_theme(variables: Mapping[str, str]) -> Theme:
    """Rich's Markdown styles in the app's colours."""
    primary, quiet, accent = variables["primary"], variables["quiet"], variables["accent"]
    headings = {f"markdown.h{level}": Style(bold=True, color=primary) for level in range(1, 7)}
    return Theme(
        {
            **headings,
            "markdown.code": Style(color=accent, bgcolor=variables["panel"]),
            "markdown.code_block": Style(color=variables["foreground"]),
            "markdown.block_quote": Style(color=quiet, italic=True),
            "markdown.item.bullet": Style(color=primary),
            "markdown.item.number": Style(color=primary),
            "markdown.hr": Style(color=variables["faint"]),
            "markdown.link": Style(color=variables["secondary"]),
            "markdown.link_url": Style(color=variables["secondary"], underline=True),
            "markdown.table.border": Style(color=variables["faint"]),
            "markdown.table.header": Style(bold=True, color=primary),
        }
    )
