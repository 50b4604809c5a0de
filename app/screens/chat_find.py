"""Finding text in the chat: matches are marked and stepped through."""

from __future__ import annotations

import asyncio
import re

from app.find import pattern_of
from app.screens.chat_actions import ChatActions
from app.widgets.entry import Entry
from app.widgets.find_bar import FindBar
from app.widgets.prompt import Prompt
from app.widgets.turn import TurnWidget

_AT_ONCE = 8
"""Rows searched before keys and the screen have their turn."""


class ChatFind(ChatActions):
    """The find bar at work."""

    _pattern: re.Pattern[str] | None = None
    _matches: tuple[tuple[Entry, int], ...] = ()
    """Row and number of the match within it, from the top of the chat."""
    _match = 0

    def action_find(self) -> None:
        """Open the find bar."""
        self.query_one(FindBar).open()

    def on_find_bar_changed(self, message: FindBar.Changed) -> None:
        self.run_worker(self._find(message.query), group="find", exclusive=True)

    async def on_find_bar_stepped(self, message: FindBar.Stepped) -> None:
        if self._matches:
            self._match = (self._match + message.step) % len(self._matches)
            await self._show_match()

    def on_find_bar_closed(self) -> None:
        self._pattern, self._matches = None, ()
        self.transcript.mark(None)
        self.query_one(Prompt).focus()

    async def _find(self, query: str) -> None:
        pattern, matches = pattern_of(query), []
        for number, entry in enumerate(self.transcript.entries if pattern is not None else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            assert pattern is not None
            matches += [(entry, place) for place, _ in enumerate(pattern.finditer(entry.text))]
        self._pattern, self._matches, self._match = pattern, tuple(matches), len(matches) - 1
        if matches:
            await self._show_match()
        else:
            self.transcript.mark(pattern)
            self.query_one(FindBar).show_count("nothing found" if pattern is not None else "")

    async def _show_match(self) -> None:
        """Mark and bring on screen the match in turn."""
        entry, place = self._matches[self._match]
        if entry not in self.transcript.entries:
            return
        if entry.widget is None:
            await self.transcript.reveal(entry)
        self.transcript.mark(self._pattern, (entry, place))
        lines = entry.widget.lines if isinstance(entry.widget, TurnWidget) else None
        await self.transcript.reveal(entry, lines.line_of_match(place) if lines is not None else 0)
        self.query_one(FindBar).show_count(f"{self._match + 1} of {len(self._matches)}")
