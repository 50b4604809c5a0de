"""The versions of a chat as a tree, to go to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.versions import VersionRow
from app.formatting.figures import counted
from app.formatting.sanitise import visible
from app.storage.words import when
from app.ui.key_map import bindings_of
from app.ui.screens.list_sheet import ListSheet
from app.ui.screens.sheets import AboutChat

_TEXT_WIDTH = 40
"""Characters of what begins a version."""


class VersionsScreen(AboutChat, ListSheet[str]):
    """Dismisses with the id of the chat to go to, or None."""

    ACTION_SCOPE: ClassVar[str] = "sheet"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("sheet")]

    def __init__(self, rows: Sequence[VersionRow], open_chat_id: str) -> None:
        super().__init__(f"{len(rows)} versions of this chat")
        self._rows = rows
        self._open_chat_id = open_chat_id

    def compose_below(self) -> ComposeResult:
        yield from ()

    def on_mount(self) -> None:
        self.listed.set_options(_option(row, self._open_chat_id) for row in self._rows)
        ids = [row.chat_id for row in self._rows]
        self.listed.highlighted = ids.index(self._open_chat_id) if self._open_chat_id in ids else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index].chat_id)


def _option(row: VersionRow, open_chat_id: str) -> Option:
    """The place in the tree, then what begins there, a question or an answer: what tells versions apart comes first,
    since the end may be cut."""
    begins = visible(row.begins) or "no text yet"
    return Option(
        Content.assemble(
            (row.lines, "$faint"),
            (f"version {row.number} · ", "bold $primary"),
            ("here · " if row.chat_id == open_chat_id else "", "$primary"),
            ("answer: " if row.is_answer else "", "$quiet"),
            begins if len(begins) <= _TEXT_WIDTH else begins[: _TEXT_WIDTH - 1] + "…",
            (f"  {counted(row.num_turns, 'turn')} · {when(row.updated_at)}", "$quiet"),
        )
    )
