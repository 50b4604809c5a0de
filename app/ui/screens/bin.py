"""The bin: what was deleted, to restore it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.storage.bin import BIN_DAYS
from app.storage.recorder import Recorder
from app.storage.records import Deletion
from app.storage.store import ChatStore
from app.storage.words import about_deletion
from app.ui.key_map import bindings_of
from app.ui.screens.list_sheet import ListSheet
from engine.errors import MoeChatError


class BinScreen(ListSheet[None]):
    """Every deletion, the newest first."""

    ACTION_SCOPE: ClassVar[str] = "sheet"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("sheet")]

    def __init__(self, store: ChatStore, recorder: Recorder) -> None:
        super().__init__(f"Bin: deleted less than {BIN_DAYS} days ago")
        self._store = store
        self._recorder = recorder
        self._deletions: list[Deletion] = []

    def on_mount(self) -> None:
        self._show()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        try:
            self._recorder.restore(self._deletions[event.option_index].deletion_id)
        except MoeChatError as error:
            self.note(error.in_full)
            return
        title = self._deletions[event.option_index].title
        self._show()
        self.note(f"Restored “{title}”.")

    def _show(self) -> None:
        try:
            self._deletions = self._store.bin.deletions()
        except MoeChatError as error:
            self.note(error.in_full)
            return
        self.listed.set_options(_option(deletion) for deletion in self._deletions)
        self.listed.highlighted = 0 if self._deletions else None
        self.note("" if self._deletions else "The bin is empty.")


def _option(deletion: Deletion) -> Option:
    return Option(
        Content.assemble(
            (visible(deletion.title), "bold"), "\n", (visible(about_deletion(deletion)), "$foreground 65%")
        )
    )
