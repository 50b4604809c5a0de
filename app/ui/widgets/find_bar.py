"""The line in which text to find is typed: matches in the transcript are marked, counted and stepped through."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from app.ui.widgets.entry import Found
from app.ui.widgets.transcript import Transcript

_AT_ONCE = 8
"""Rows searched before keys and the screen have their turn."""


class FindBar(Horizontal):
    """Hidden until it is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down,f3", "step(1)", "Next", priority=True),
        Binding("shift+enter,up,shift+f3", "step(-1)", "Previous", priority=True),
        Binding("escape", "close", "Close", priority=True),
    ]

    class Closed(Message):
        """No more finding."""

    def __init__(self, transcript: Transcript, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.display = False
        self._transcript = transcript
        self._matches: tuple[Found, ...] = ()
        """From the top of the chat."""
        self._match = 0
        """The one in turn."""

    def compose(self) -> ComposeResult:
        yield Static("find ", classes="find-label", markup=False)
        yield Input(id="find-input", compact=True, select_on_focus=True)
        yield Static("", id="find-count", markup=False)

    def open(self, query: str = "") -> None:
        """Show it, and take the focus."""
        was_open, self.display = self.display, True
        field = self.query_one(Input)
        if query:
            field.value = query
        elif field.value and not was_open:
            self._find(field.value)
        field.focus()

    async def show_found(self, position: int, found: Sequence[str]) -> bool:
        """Bring on screen the turn at a position, the texts `found` in it marked; False where they are not in it."""
        entry, pattern = self._transcript.entry_at(position), pattern_of_any(found)
        matches = await self._matches_of(pattern)
        here = next((number for number, match in enumerate(matches) if match.entry is entry), None)
        if here is None:
            return False
        self._matches, self._match = matches, here
        self.display = True
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = " ".join(dict.fromkeys(found))
        self._transcript.mark(pattern)
        await self._show_match()
        return True

    def end(self) -> None:
        """Nothing is marked any more, and the bar is gone."""
        self.display = False
        self._matches = ()
        self._transcript.mark(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._find(event.value)

    async def action_step(self, step: int) -> None:
        """The next or the previous match."""
        if self._matches:
            self._match = (self._match + step) % len(self._matches)
            await self._show_match()

    def action_close(self) -> None:
        """Close it."""
        self.end()
        self.post_message(self.Closed())

    @work(group="find", exclusive=True)
    async def _find(self, query: str) -> None:
        pattern = pattern_of(query)
        matches = await self._matches_of(pattern)
        self._matches, self._match = matches, len(matches) - 1
        self._transcript.mark(pattern)
        if matches:
            await self._show_match()
        else:
            self._show_count("nothing found" if pattern is not None else "")

    async def _matches_of(self, pattern: re.Pattern[str] | None) -> tuple[Found, ...]:
        """Every place in the chat where it matches."""
        matches: list[Found] = []
        for number, entry in enumerate(list(self._transcript.entries) if pattern is not None else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            assert pattern is not None
            for part, text in entry.texts(shows_thinking=self._transcript.shows_thinking).items():
                matches += [Found(entry, part, place) for place, _ in enumerate(pattern.finditer(text))]
        return tuple(matches)

    async def _show_match(self) -> None:
        """Mark and bring on screen the match in turn."""
        found = self._matches[self._match]
        if found.entry in self._transcript.entries:
            await self._transcript.reveal_found(found)
            self._show_count(f"{self._match + 1} of {len(self._matches)}")

    def _show_count(self, text: str) -> None:
        """Such as `3 of 17`."""
        self.query_one("#find-count", Static).update(text)


def pattern_of_any(queries: Iterable[str]) -> re.Pattern[str] | None:
    """Any of several texts, each as in `pattern_of`; the longest one that matches."""
    patterns = {pattern.pattern for query in queries if (pattern := pattern_of(query)) is not None}
    return re.compile("|".join(sorted(patterns, key=len, reverse=True)), re.IGNORECASE) if patterns else None


def pattern_of(query: str) -> re.Pattern[str] | None:
    """`query` without regard to case; a blank matches any white space, so that wrapped text is found. None: nothing
    to find."""
    words = query.split()
    return re.compile(r"\s+".join(re.escape(word) for word in words), re.IGNORECASE) if words else None
