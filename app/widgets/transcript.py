"""The transcript: scrolls with the answer unless the user has scrolled away; mounts a bounded number of turns."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from app.widgets.turn import AnswerTurn, Notice, QuestionTurn

MAX_MOUNTED = 50
"""Turns kept as widgets; more make resizing and focus slow."""


class Transcript(VerticalScroll, can_focus=False):
    """Questions, answers and notices, in order. The prompt keeps the focus: typing always lands there."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self._num_dropped = 0

    def on_mount(self) -> None:
        self.anchor()

    async def add_question(self, text: str) -> QuestionTurn:
        """Show what the user said, at the end."""
        turn = QuestionTurn(text)
        await self._append(turn)
        self.anchor()
        return turn

    async def add_answer(self, after: Widget | None) -> AnswerTurn:
        """Open an answer below its question."""
        turn = AnswerTurn()
        await self._append(turn, after if after is not None and after.is_mounted else None)
        return turn

    async def add_notice(self, text: str, *, is_error: bool = False, before: Widget | None = None) -> None:
        """Show a line of the app's own, at the end or before another widget."""
        await self._append(Notice(text, is_error=is_error), before=before)

    async def clear(self) -> None:
        """Begin an empty transcript."""
        self._num_dropped = 0
        await self.remove_children()
        self.anchor()

    async def _append(self, widget: Widget, after: Widget | None = None, before: Widget | None = None) -> None:
        await self.mount(widget, after=after, before=before)
        turns = [child for child in self.children if isinstance(child, QuestionTurn | AnswerTurn | Notice)]
        surplus = turns[: max(0, len(turns) - MAX_MOUNTED)]
        surplus = [turn for turn in surplus if not isinstance(turn, AnswerTurn) or turn.is_finished]
        if not surplus:
            return
        self._num_dropped += sum(not isinstance(turn, Notice) for turn in surplus)
        await self.remove_children(surplus)
        text = f"{self._num_dropped} earlier turns are kept with the chat, not shown here"
        if marks := self.query("#earlier").results(Static):
            for mark in marks:
                mark.update(text)
                return
        await self.mount(Static(text, id="earlier", markup=False), before=0)
