"""The versions of a chat as a tree, to go to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chat.versions import VersionRow
from app.formatting.sanitise import visible
from app.storage.words import num_turns, when
from app.ui.key_map import bindings_of
from app.ui.screens.sheets import AboutChat
from app.ui.widgets.key_line import KeyLine


class VersionsScreen(AboutChat, ModalScreen[str | None]):
    """Dismisses with the id of the chat to go to, or None."""

    AUTO_FOCUS = "#versions-list"
    ACTION_SCOPE: ClassVar[str] = "sheet"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("sheet")]

    def __init__(self, rows: Sequence[VersionRow], open_chat_id: str) -> None:
        super().__init__()
        self._rows = rows
        self._open_chat_id = open_chat_id

    def compose(self) -> ComposeResult:
        with Vertical(classes="list-sheet"):
            yield Static(f"{len(self._rows)} versions of this chat", classes="list-title", markup=False)
            yield OptionList(*(_option(row, self._open_chat_id) for row in self._rows), id="versions-list")
            yield KeyLine()

    def on_mount(self) -> None:
        ids = [row.chat_id for row in self._rows]
        self.query_one(OptionList).highlighted = ids.index(self._open_chat_id) if self._open_chat_id in ids else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._rows[event.option_index].chat_id)

    def action_choose(self) -> None:
        """Go to the highlighted version."""
        self.query_one(OptionList).action_select()

    def action_back(self) -> None:
        """Back to the chat."""
        self.dismiss(None)


def _option(row: VersionRow, open_chat_id: str) -> Option:
    """The place in the tree, then what begins there: a question, or an answer. The end may be cut."""
    about = f"{num_turns(row.num_turns)} · {when(row.updated_at)}  "
    return Option(
        Content.assemble(
            (row.lines, "$faint"),
            (f"version {row.number} · ", "bold $primary"),
            ("here · " if row.chat_id == open_chat_id else "", "$primary"),
            (about, "$quiet"),
            ("answer: " if row.is_answer else "", "$quiet"),
            visible(row.begins) if row.begins else "no text yet",
        )
    )
