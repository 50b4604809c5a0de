"""What the transcript holds a row of: a question, an answer or a notice, whether it is a widget now or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from textual.widget import Widget

from app.chat.exchange import Exchange
from app.formatting.markdown import parser, plain_text
from app.formatting.sanitise import visible
from app.storage.records import searched_text
from app.ui.widgets.turn import ANSWER, QUESTION, THINKING, AnswerTurn, Notice, QuestionTurn


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
    def position(self) -> int | None:
        """Where the turn stands in its chat."""
        turn = None if self.exchange is None else self.exchange.answer if self.is_answer else self.exchange.question
        return turn.position if turn is not None else None

    def texts(self, *, shows_thinking: bool) -> dict[str, str]:
        """What is searched, by part: text as it is read, and of a question the files, too. Nothing of notices and of
        what is being written."""
        if self.exchange is None or self.is_live:
            return {}
        if not self.is_answer:
            return {QUESTION: self._question()}
        answer = self.exchange.answer
        written = answer.text if answer is not None else ""
        if self._searched[0] != written:
            self._searched = (written, plain_text(parser().parse(visible(written))))
        is_open = isinstance(self.widget, AnswerTurn) and self.widget.is_thinking_open
        thinking = visible(answer.thinking).strip("\n") if answer is not None and (shows_thinking or is_open) else ""
        return {THINKING: thinking, ANSWER: self._searched[1]}

    def _question(self) -> str:
        """The question as it stands on screen when it is open."""
        assert self.exchange is not None
        question = self.exchange.question
        if self._searched[0] != question.text:
            self._searched = (question.text, visible(searched_text(question.text, question.attachments)))
        return self._searched[1]


class Found(NamedTuple):
    """One match: in which row, in which part of it, and which match it is there."""

    entry: Entry
    part: str
    number: int
