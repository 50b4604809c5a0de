"""What the transcript holds a row of: a question, an answer or a notice, whether it is a widget now or not."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.widget import Widget

from app.exchange import Exchange
from app.markdown_style import parser, plain_text
from app.sanitise import visible
from app.widgets.turn import AnswerTurn, Notice, QuestionTurn


@dataclass(slots=True, eq=False)
class Entry:
    """One row. `exchange` None: a notice."""

    exchange: Exchange | None = None
    is_answer: bool = False
    notice: str = ""
    is_error: bool = False
    is_limit: bool = False
    """A notice of what the model no longer sees."""
    widget: Widget | None = field(default=None, repr=False)
    """Only while it is mounted."""
    _searched: tuple[str, str] = ("", "")

    def make(self, *, shows_thinking: bool) -> Widget:
        """A widget for it."""
        if self.exchange is None:
            self.widget = Notice(self.notice, is_error=self.is_error)
        elif self.is_answer:
            self.widget = AnswerTurn(self.exchange, shows_thinking=shows_thinking)
        else:
            self.widget = QuestionTurn(self.exchange)
        return self.widget

    @property
    def is_live(self) -> bool:
        """Its answer is being written."""
        return self.is_answer and self.exchange is not None and self.exchange.is_live

    @property
    def text(self) -> str:
        """What is searched: text as it is read. Nothing of notices and of what is being written."""
        if self.exchange is None or self.is_live:
            return ""
        if not self.is_answer:
            return visible(self.exchange.question.text)
        written = self.exchange.answer.text if self.exchange.answer is not None else ""
        if self._searched[0] != written:
            self._searched = (written, plain_text(parser().parse(visible(written))))
        return self._searched[1]
