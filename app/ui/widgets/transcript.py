"""The transcript: questions, answers and notices, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable

from app.chat.exchange import Exchange
from app.ui.widgets.entry import Entry, Found
from app.ui.widgets.row_window import RowWindow
from app.ui.widgets.turn import QUESTION, AnswerTurn, TurnWidget


class Transcript(RowWindow):
    """What is in the chat, and what is marked in it."""

    async def show(self, exchanges: Iterable[Exchange]) -> None:
        """Begin anew with the turns of a chat, at its end."""
        async with self.steps:
            self.entries = [
                entry
                for exchange in exchanges
                for entry in (Entry(exchange), Entry(exchange, is_answer=True))
                if (entry.is_answer and exchange.answer is not None) or not entry.is_answer
            ]
            await self._mount_stretch(len(self.entries))
            await self.show_left_out()
            self.anchor()

    async def add_question(self, exchange: Exchange) -> None:
        """Show what the user said, at the end."""
        async with self.steps:
            await self.to_end()
            await self._insert(len(self.entries), Entry(exchange))

    async def add_exchange(self, exchange: Exchange, *, before: Exchange | None = None) -> None:
        """Show a question and its answer, at the end or before another question."""
        async with self.steps:
            entry = self.entry_of(before, is_answer=False) if before is not None else None
            at = self.entries.index(entry) if entry is not None else len(self.entries)
            await self._insert(at, Entry(exchange))
            if exchange.answer is not None:
                await self._insert(at + 1, Entry(exchange, is_answer=True))

    async def add_answer(self, exchange: Exchange) -> None:
        """Open an answer below its question, or open it again."""
        async with self.steps:
            if (known := self.entry_of(exchange, is_answer=True)) is not None:
                if isinstance(known.widget, AnswerTurn):
                    await known.widget.reopen()
                return
            question = self.entry_of(exchange, is_answer=False)
            at = self.entries.index(question) + 1 if question is not None else len(self.entries)
            await self._insert(at, Entry(exchange, is_answer=True))

    async def add_notice(self, text: str, *, is_error: bool = False, before: Exchange | None = None) -> None:
        """Show a line of the app's own, at the end or before a question."""
        async with self.steps:
            entry = self.entry_of(before, is_answer=False) if before is not None else None
            at = self.entries.index(entry) if entry is not None else len(self.entries)
            await self._insert(at, Entry(notice=text, is_error=is_error))

    async def add_first_notice(self, text: str) -> None:
        """Show a line of the app's own above everything."""
        async with self.steps:
            await self._insert(0, Entry(notice=text))

    async def remove_exchange(self, exchange: Exchange, *, answer_only: bool = False) -> None:
        """Take a question and its answer out, or its answer alone."""
        async with self.steps:
            for entry in [entry for entry in self.entries if entry.exchange is exchange]:
                if entry.is_answer or not answer_only:
                    await self._remove(entry)

    def entry_of(self, exchange: Exchange, *, is_answer: bool) -> Entry | None:
        """The row of a question or an answer."""
        return next(
            (entry for entry in self.entries if entry.exchange is exchange and entry.is_answer == is_answer), None
        )

    def entry_at(self, position: int) -> Entry | None:
        """The row of the turn at that position of the chat."""
        return next((entry for entry in self.entries if entry.position == position), None)

    def answer_of(self, exchange: Exchange) -> AnswerTurn | None:
        """The widget of an answer, if it has one now."""
        entry = self.entry_of(exchange, is_answer=True)
        widget = entry.widget if entry is not None else None
        return widget if isinstance(widget, AnswerTurn) and widget.is_shown else None

    async def show_left_out(self) -> None:
        """Mark anew what the model no longer sees."""
        async with self.steps:
            for turn in self._turns:
                turn.show_left_out()
            left_out = [entry for entry in self.entries if entry.exchange is not None and entry.exchange.is_left_out]
            for entry in [entry for entry in self.entries if entry.is_limit]:
                await self._remove(entry)
            if left_out:
                at = self.entries.index(left_out[-1]) + 1
                await self._insert(at, Entry(notice="▲ the model no longer sees what is above", is_limit=True))

    def refresh_turns(self) -> None:
        """Draw again what is told with the turns."""
        for turn in self._turns:
            turn.refresh_notes()

    def show_all_thinking(self, is_shown: bool) -> None:
        """Open or fold what the model thought, in every answer."""
        self.shows_thinking = is_shown
        for turn in self.query(AnswerTurn):
            turn.toggle_thinking(is_shown)

    def mark(self, pattern: re.Pattern[str] | None, current: Found | None = None) -> None:
        """Mark what matches in every turn, and one match more strongly."""
        self._pattern = pattern
        now = current.entry.widget if current is not None else None
        for turn in self._turns:
            turn.mark_parts(pattern, (current.part, current.number) if current is not None and turn is now else None)

    async def reveal_found(self, found: Found) -> None:
        """Bring a match on screen, into the middle; a folded text that holds it is opened."""
        await self.reveal(found.entry)
        turn = found.entry.widget
        if not isinstance(turn, TurnWidget):
            return
        turn.open_part(found.part)
        self._lay_out()
        self.mark(self._pattern, found)
        lines = turn.parts.get(found.part)
        if lines is not None:
            top = turn.virtual_region.y + (lines.virtual_region.y if found.part != QUESTION else 0)
            line = lines.line_of_match(found.number)
            self.scroll_to(y=max(0, top + line - self.size.height // 2), animate=False)

    @property
    def _turns(self) -> list[TurnWidget]:
        """The turns that are mounted."""
        return [entry.widget for entry in self.entries if isinstance(entry.widget, TurnWidget)]
