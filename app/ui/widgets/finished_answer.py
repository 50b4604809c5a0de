"""A finished answer: its Markdown as lines."""

from __future__ import annotations

from app.ui.markdown_style import FinishedMarkdown, parser
from app.ui.widgets.text_lines import TextLines


class FinishedAnswer(TextLines):
    """An answer that will not change any more."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.markdown = markdown
        self._tokens = parser().parse(markdown)

    def renderable(self, *, is_seen: bool) -> FinishedMarkdown:
        return FinishedMarkdown(self._tokens, self.app.theme_variables, highlights=is_seen)
