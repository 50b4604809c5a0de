"""How the Markdown of a finished answer looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, cast

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.theme import Theme

from app.ui.code_colours import CodeLines


class _LeftHeading(Heading):
    """A heading without the box and the centring."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _PlainCodeBlock(CodeBlock):
    """Code without blank lines around it. Its theme is what `CodeLines` calls colours."""

    def __init__(self, token: Token, colours: Mapping[str, str] | None) -> None:
        self._lines = CodeLines(token, colours)

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _PlainCodeBlock:
        return cls(token, cast("Mapping[str, str] | None", markdown.code_theme))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._lines


class _DottedItem(ListItem):
    """A list item whose number has its dot."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        for place, part in enumerate(super().render_number(console, options, number, last_number)):
            if place == 0 and isinstance(part, Segment):
                yield Segment(f"{number}.".rjust(len(str(last_number)) + 1) + " ", part.style)
            else:
                yield part


class _PlainTable(TableElement):
    """A table without the blank lines of an outer edge. Words that are wider than their column are folded, not cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.show_edge = False
                for column in table.columns:
                    column.overflow = "fold"
            yield table


_EMPTY = Markdown("", hyperlinks=False)


class FinishedMarkdown(Markdown):
    """A finished answer as one renderable, in the colours of the theme with these `variables`.

    `tokens` is what the parser of `app.formatting.markdown` made of it. Without `highlights` code is plain, which takes
    a tenth of the time.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCodeBlock,
        "code_block": _PlainCodeBlock,
        "list_item_open": _DottedItem,
        "table_open": _PlainTable,
    }

    def __init__(self, tokens: list[Token], variables: Mapping[str, str], *, highlights: bool = True) -> None:
        vars(self).update(vars(_EMPTY))  # its own constructor makes a parser each time
        self.parsed, self.code_theme = tokens, cast(str, variables if highlights else None)
        self._theme = _rich_theme(variables)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(self._theme):
            yield from super().__rich_console__(console, options)


def _rich_theme(variables: Mapping[str, str]) -> Theme:
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
