"""Markdown of the answer that is being written, looking as it will when it is finished."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from app.code_colours import ROLES
from app.markdown_style import parser


class _CodeTheme(HighlightTheme):
    STYLES: ClassVar[dict[tuple[str, ...], str]] = {token: f"${role}" for token, role in ROLES.items()}  # type: ignore[misc]


class LiveFence(MarkdownFence):
    """A block of code in the app's colours."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """The code with its colours; those of the theme, whatever `ansi` and `dark` say."""
        return highlight(code, language=language or None, theme=_CodeTheme)


class LiveMarkdown(Markdown):
    """Grows by `Markdown.get_stream`."""

    BLOCKS: ClassVar[dict[str, type[MarkdownBlock]]] = {  # type: ignore[misc]
        **Markdown.BLOCKS,
        "fence": LiveFence,
        "code_block": LiveFence,
    }

    def __init__(self, text: str = "") -> None:
        super().__init__(text, parser_factory=parser, open_links=False)
