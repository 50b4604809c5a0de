"""Finding text in the chat: matches are marked and stepped through."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from textual import work

from app.chat.find import pattern_of, pattern_of_any
from app.ui.screens.chat_actions import ChatActions
from app.ui.widgets.entry import Found
from app.ui.widgets.find_bar import FindBar
from app.ui.widgets.prompt import Prompt

_AT_ONCE = 8
"""Rows searched before keys and the screen have their turn."""


class ChatFind(ChatActions):
    """The find bar at work."""

    _matches: tuple[Found, ...] = ()
    """From the top of the chat."""
    _match = 0
    """The one in turn."""

    def action_find(self) -> None:
        """Open the find bar."""
        self.query_one(FindBar).open()

    def on_find_bar_changed(self, message: FindBar.Changed) -> None:
        self._find(message.query)

    async def on_find_bar_stepped(self, message: FindBar.Stepped) -> None:
        if self._matches:
            self._match = (self._match + message.step) % len(self._matches)
            await self._show_match()

    def on_find_bar_closed(self) -> None:
        self.end_finding()
        self.query_one(Prompt).focus()

    def end_finding(self) -> None:
        """Nothing is marked any more, and the bar is gone."""
        self.query_one(FindBar).display = False
        self._matches = ()
        self.transcript.mark(None)

    async def show_found(self, position: int, found: Sequence[str]) -> None:
        """Bring on screen the turn at a position, the texts `found` in it marked; the find bar steps to others."""
        entry, pattern = self.transcript.entry_at(position), pattern_of_any(found)
        matches = await self._matches_of(pattern)
        here = next((number for number, match in enumerate(matches) if match.entry is entry), None)
        if here is None:
            await self._focus_turn(position)
            return
        self._matches, self._match = matches, here
        self.query_one(FindBar).open_found(" ".join(dict.fromkeys(found)))
        self.transcript.mark(pattern)
        await self._show_match()

    @work(group="find", exclusive=True)
    async def _find(self, query: str) -> None:
        pattern = pattern_of(query)
        matches = await self._matches_of(pattern)
        self._matches, self._match = matches, len(matches) - 1
        self.transcript.mark(pattern)
        if matches:
            await self._show_match()
        else:
            self.query_one(FindBar).show_count("nothing found" if pattern is not None else "")

    async def _matches_of(self, pattern: re.Pattern[str] | None) -> tuple[Found, ...]:
        """Every place in the chat where it matches."""
        matches: list[Found] = []
        for number, entry in enumerate(list(self.transcript.entries) if pattern is not None else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            assert pattern is not None
            for part, text in entry.texts(shows_thinking=self.transcript.shows_thinking).items():
                matches += [Found(entry, part, place) for place, _ in enumerate(pattern.finditer(text))]
        return tuple(matches)

    async def _show_match(self) -> None:
        """Mark and bring on screen the match in turn."""
        found = self._matches[self._match]
        if found.entry in self.transcript.entries:
            await self.transcript.reveal_found(found)
            self.query_one(FindBar).show_count(f"{self._match + 1} of {len(self._matches)}")
