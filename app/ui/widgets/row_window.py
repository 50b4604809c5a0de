"""Rows that scroll, of which only a stretch is mounted: it moves as the user scrolls, and follows the end unless the
user has scrolled away."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.ui.widgets.entry import Entry
from app.ui.widgets.one_at_a_time import OneAtATime
from app.ui.widgets.turn import TurnWidget

_PAGE = 8
"""Rows that come and go at once."""
_EDGE = 3
"""Lines from the end of what is mounted at which more comes."""


class RowWindow(VerticalScroll, can_focus=False, can_focus_children=False):
    """The rows of a chat, in order. Many widgets make resizing slow."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.entries: list[Entry] = []
        self.shows_thinking = False
        self._first = self._last = 0
        self._is_moving = False
        self.steps = OneAtATime()
        """Held by whatever changes the rows or which of them are mounted: places are only good until it is let go."""
        self._pattern: re.Pattern[str] | None = None
        """What is marked in rows that come."""

    def on_mount(self) -> None:
        self.anchor()

    @property
    def max_mounted(self) -> int:
        """Rows kept as widgets: more than fill the screen, as each takes two lines or more. Many make resizing slow."""
        return max(self.size.height, self.app.size.height) // 2 + _PAGE

    @property
    def _is_following(self) -> bool:
        return self.is_anchored and not self._anchor_released

    async def to_end(self) -> None:
        """Show the end, and follow the answer again."""
        async with self.steps:
            if self._last < len(self.entries):
                await self._mount_stretch(len(self.entries))
            self.anchor()

    async def to_start(self) -> None:
        """Show the beginning."""
        async with self.steps:
            if self._first > 0:
                await self._mount_stretch(min(self.max_mounted, len(self.entries)))
                self._lay_out()
            self.scroll_to(y=0, animate=False)

    async def reveal(self, entry: Entry) -> None:
        """Bring a row on screen."""
        async with self.steps:
            if entry not in self.entries:
                return  # it went while this waited
            if entry.widget is None:
                await self._mount_stretch(min(self.entries.index(entry) + _PAGE, len(self.entries)))
                self._lay_out()
            if (widget := entry.widget) is not None:
                widget.scroll_visible(animate=False, top=widget.size.height > self.size.height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        near_top = new_value <= _EDGE and self._first > 0
        near_end = new_value >= self.max_scroll_y - _EDGE and self._last < len(self.entries)
        if (near_top or near_end) and not self._is_moving and self.is_attached:
            self._is_moving = True
            self.call_next(self._move_up if near_top else self._move_down)

    async def on_resize(self) -> None:
        """More rows may fit."""
        if self._first > 0 and self._last - self._first < self.max_mounted and not self._is_moving:
            self._is_moving = True
            await self._move_up()

    async def _insert(self, at: int, entry: Entry) -> None:
        async with self.steps:
            self.entries.insert(at, entry)
            if at < self._first:
                self._first, self._last = self._first + 1, self._last + 1
            elif at <= self._last:
                self._last += 1
                await self._mount_entries(at, at + 1)
                if self._is_following:
                    await self._unmount_before(self._last - self.max_mounted)
            self._tell_hidden()

    async def _remove(self, entry: Entry) -> None:
        async with self.steps:
            at = self.entries.index(entry)
            del self.entries[at]
            self._first -= at < self._first
            self._last -= at < self._last
            await self._unmount([entry])

    async def _mount_stretch(self, last: int) -> None:
        """Mount the rows before `last` in place of what is mounted."""
        async with self.steps:
            with self.app.batch_update():
                await self._unmount(self.entries)
                await self.remove_children()
                self._first, self._last = max(0, last - self.max_mounted), last
                await self._mount_entries(self._first, self._last)
                self._tell_hidden()

    async def _move_up(self) -> None:
        """Earlier rows come, later ones go; what is on screen stays where it is."""
        async with self.steps, self._moving():
            if not self.entries[self._first : self._last]:
                return  # the rows went while this waited
            stays, first = self.entries[self._first], max(0, self._first - _PAGE)
            before = self._place_of(stays)
            self._first, until = first, self._first
            await self._mount_entries(first, until)
            while self._last - self._first > self.max_mounted and not self.entries[self._last - 1].is_live:
                self._last -= 1
            await self._unmount(self.entries[self._last :])
            self._keep_in_place(stays, before)

    async def _move_down(self) -> None:
        """Later rows come, earlier ones go; what is on screen stays where it is."""
        async with self.steps, self._moving():
            if not self.entries[self._first : self._last]:
                return
            self.release_anchor()  # the end of what is mounted was reached, not that of the chat
            stays, last = self.entries[self._last - 1], min(len(self.entries), self._last + _PAGE)
            before = self._place_of(stays)
            begun, self._last = self._last, last
            await self._mount_entries(begun, last)
            await self._unmount_before(self._last - self.max_mounted)
            self._keep_in_place(stays, before)

    @asynccontextmanager
    async def _moving(self) -> AsyncIterator[None]:
        """Nothing is drawn until the stretch has moved; then it may move again."""
        try:
            with self.app.batch_update():
                yield
        finally:
            self._is_moving = False

    async def _unmount_before(self, first: int) -> None:
        if first > self._first:
            self._first = first
            await self._unmount(self.entries[:first])

    async def _mount_entries(self, begin: int, end: int) -> None:
        widgets = [entry.make(shows_thinking=self.shows_thinking) for entry in self.entries[begin:end]]
        following = next((entry.widget for entry in self.entries[end : self._last] if entry.widget), None)
        await self.mount_all(widgets, before=following or next(iter(self.query("#later")), None))
        for widget in widgets:
            if isinstance(widget, TurnWidget) and self._pattern is not None:
                widget.mark_parts(self._pattern)

    async def _unmount(self, entries: list[Entry]) -> None:
        widgets = [entry.widget for entry in entries if entry.widget is not None]
        for entry in entries:
            entry.widget = None
        if widgets:
            await self.remove_children(widgets)

    def _tell_hidden(self) -> None:
        """Say how many turns are not mounted, at either end."""
        for name, hidden, at in (
            ("earlier", self.entries[: self._first], 0),
            ("later", self.entries[self._last :], None),
        ):
            num_turns = sum(entry.exchange is not None for entry in hidden)
            text = Content(f"{'▲' if name == 'earlier' else '▼'} {num_turns} {name} turns")
            mark = next(iter(self.query(f"#{name}").results(Static)), None)
            if mark is not None:
                mark.update(text)
                mark.display = bool(num_turns)
            elif num_turns:
                self.mount(Static(text, id=name, markup=False), before=at)

    def _place_of(self, entry: Entry) -> int:
        """How far below the top of the whole a row lies."""
        return entry.widget.virtual_region.y if entry.widget is not None else 0

    def _keep_in_place(self, entry: Entry, before: int) -> None:
        self._tell_hidden()
        scroll_y = self.scroll_y
        self._lay_out()
        self.scroll_to(y=scroll_y + self._place_of(entry) - before, animate=False, force=True, immediate=True)

    def _lay_out(self) -> None:
        """Give what has just been mounted its place now, before anything is drawn."""
        self.screen._refresh_layout()
