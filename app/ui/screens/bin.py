"""The bin: what was deleted, to restore it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.storage.bin import BIN_DAYS
from app.storage.recorder import Recorder
from app.storage.records import Deletion
from app.storage.store import ChatStore
from app.storage.words import about_deletion
from app.ui.key_map import bindings_of
from app.ui.widgets.key_line import KeyLine
from engine.errors import MoeChatError


class BinScreen(ModalScreen[None]):
    """Every deletion, the newest first."""

    AUTO_FOCUS = "#bin-list"
    ACTION_SCOPE: ClassVar[str] = "sheet"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("sheet")]

    def __init__(self, store: ChatStore, recorder: Recorder) -> None:
        super().__init__()
        self._store = store
        self._recorder = recorder
        self._deletions: list[Deletion] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="list-sheet"):
            yield Static(f"Bin: deleted less than {BIN_DAYS} days ago", classes="list-title", markup=False)
            yield OptionList(id="bin-list")
            yield Static(id="bin-note", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self._show()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        try:
            self._recorder.restore(self._deletions[event.option_index].deletion_id)
        except MoeChatError as error:
            self._note(error.in_full)
            return
        title = self._deletions[event.option_index].title
        self._show()
        self._note(f"Restored “{title}”.")

    def action_choose(self) -> None:
        """Restore what is highlighted."""
        self.query_one(OptionList).action_select()

    def action_back(self) -> None:
        """Back to the list of chats."""
        self.dismiss(None)

    def _show(self) -> None:
        options = self.query_one(OptionList)
        try:
            self._deletions = self._store.bin.deletions()
        except MoeChatError as error:
            self._note(error.in_full)
            return
        options.set_options(_option(deletion) for deletion in self._deletions)
        options.highlighted = 0 if self._deletions else None
        self._note("" if self._deletions else "The bin is empty.")

    def _note(self, text: str) -> None:
        self.query_one("#bin-note", Static).update(visible(text))


def _option(deletion: Deletion) -> Option:
    return Option(
        Content.assemble(
            (visible(deletion.title), "bold"), "\n", (visible(about_deletion(deletion)), "$foreground 65%")
        )
    )
