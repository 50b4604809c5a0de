"""The list of chats: search their texts, open, rename, delete, export and import them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from app.formatting.figures import counted
from app.formatting.sanitise import visible
from app.storage import chat_import, export, import_file
from app.storage.bin import BIN_DAYS
from app.storage.recorder import Recorder
from app.storage.records import ChatPlace
from app.storage.store import ChatStore
from app.storage.words import ChatVersions
from app.ui.key_map import bindings_of, key_for
from app.ui.screens.bin import BinScreen
from app.ui.screens.confirm import Confirm
from app.ui.widgets.chat_list import ChatList
from app.ui.widgets.key_line import KeyLine
from engine.errors import MoeChatError

_SEARCH_AFTER_S = 0.12
"""How long the typing has to rest before the texts are searched."""

_SEARCHED_FOR = "Type to search every text; enter opens"


class Asking(Enum):
    """What the line at the top is for."""

    SEARCH = _SEARCHED_FOR
    NAME = "A title; empty: made from the first question"
    EXPORT = "Export to a file: .md to read, .json to keep"
    IMPORT = "Import from a .json file: of this program, or ChatGPT, Open WebUI, llama.cpp, LM Studio"


class ChatsScreen(ModalScreen[ChatPlace | None]):
    """Dismisses with the chat to open and the place in it, or None."""

    AUTO_FOCUS = "#chats-line"
    ACTION_SCOPE: ClassVar[str] = "chats"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move('cursor_up')", show=False, priority=True),
        Binding("down", "move('cursor_down')", show=False, priority=True),
        Binding("pageup", "move('page_up')", show=False, priority=True),
        Binding("pagedown", "move('page_down')", show=False, priority=True),
        *bindings_of("chats"),
    ]

    def __init__(self, store: ChatStore, recorder: Recorder, open_chat_id: str | None = None) -> None:
        """`open_chat_id` is the chat on screen, which is not deleted under the user's hands."""
        super().__init__()
        self._store = store
        self._recorder = recorder
        self._open_chat_id = open_chat_id
        self._asking = Asking.SEARCH
        self._about: ChatVersions | None = None
        """What is renamed or exported: the highlight may move while a line is typed."""
        self._searched = ""

    def compose(self) -> ComposeResult:
        with Vertical(id="chats-sheet"):
            yield Static("Chats", id="chats-title", markup=False)
            yield Input(placeholder=_SEARCHED_FOR, id="chats-line")
            yield ChatList("chats-list")
            yield Static(id="chats-note", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self._recorder.flush()
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key is there while it has something to act on."""
        is_searching, has_chat = self._asking is Asking.SEARCH, self._list.current is not None
        match action:
            case "open" | "rename" | "delete" | "export":
                return is_searching and has_chat
            case "import" | "move" | "undo" | "bin":
                return is_searching
            case _:
                return True

    # What the user does

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._asking is Asking.SEARCH:
            self.set_timer(_SEARCH_AFTER_S, lambda: self._search(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        try:
            match self._asking:
                case Asking.SEARCH:
                    self.action_open()
                case Asking.NAME:
                    self._rename(text)
                case Asking.EXPORT if text:
                    self._export(Path(text))
                case Asking.IMPORT if text:
                    self._import(Path(text))
                case _:
                    self._ask(Asking.SEARCH)
        except MoeChatError as error:
            self._note(error.in_full, is_error=True)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if self._asking is Asking.SEARCH:
            self.action_open()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.refresh_bindings()

    def action_move(self, how: str) -> None:
        """Move the highlight, wherever the focus is."""
        getattr(self._list, f"action_{how}")()

    def action_open(self) -> None:
        """Leave with the highlighted chat."""
        self._search(self._line.value)  # what was typed last may not have been searched yet
        if self._list.place is not None:
            self.dismiss(self._list.place)

    def action_rename(self) -> None:
        """Ask for another title."""
        self._about = self._list.current
        if self._about is not None:
            self._ask(Asking.NAME, self._about.newest.title)

    def action_export(self) -> None:
        """Ask for a file."""
        self._about = self._list.current
        if self._about is not None:
            kept = export.kept_chat(self._store, self._about.newest.chat_id)
            self._ask(Asking.EXPORT, export.file_name(kept, ".md") if kept is not None else "")

    def action_import(self) -> None:
        """Ask for a file."""
        self._ask(Asking.IMPORT)

    def action_delete(self) -> None:
        """Delete the highlighted chat, once confirmed."""
        family = self._list.current
        if family is None:
            return
        if self._open_chat_id in family.chat_ids:
            self._note("This chat is open. Begin or open another one, then delete it.", is_error=True)
            return
        all_of_it = f" all {len(family.versions)} versions of" if len(family.versions) > 1 else ""
        about = f"“{family.newest.title}”, {counted(family.newest.num_turns, 'turn')}"
        chat_ids = family.chat_ids

        def delete(is_meant: bool | None) -> None:
            if is_meant:
                self._recorder.delete_chats(chat_ids)
                self._show()
                self._note(f"Deleted. {key_for(self, 'chats.undo')} restores it; the bin keeps it for {BIN_DAYS} days.")

        self.app.push_screen(Confirm("Delete a chat", f"Delete{all_of_it} {about}?"), delete)

    def action_undo(self) -> None:
        """Restore the chat that was deleted last."""
        try:
            restored = self._recorder.undo()
        except MoeChatError as error:
            self._note(error.in_full, is_error=True)
            return
        self._show()
        self._note(f"Restored “{restored.deletion.title}”.")

    def action_bin(self) -> None:
        """Everything that can be restored."""
        self.app.push_screen(BinScreen(self._store, self._recorder), lambda _: self._show())

    def action_back(self) -> None:
        """Take the question back; else empty the search; else leave."""
        if self._asking is not Asking.SEARCH:
            self._ask(Asking.SEARCH)
        elif self._line.value:
            self._line.value = ""
        else:
            self.dismiss(None)

    # What becomes of it

    def _rename(self, title: str) -> None:
        if self._about is not None:
            for chat_id in self._about.chat_ids:
                self._recorder.rename(chat_id, title)
        self._ask(Asking.SEARCH)
        self._show()

    def _export(self, path: Path) -> None:
        family = self._about
        newest = None if family is None else export.kept_chat(self._store, family.newest.chat_id)
        if newest is None:
            return
        if path.suffix.lower() == ".json":
            text = export.as_json(export.with_versions(self._store, [newest.chat_id]))
        else:
            text = export.as_markdown(newest)
        written = export.write_file(path, text)
        self._ask(Asking.SEARCH)
        self._note(f"Saved to {written}")

    def _import(self, path: Path) -> None:
        found = import_file.read_file(path)
        imported = chat_import.import_chats(self._store, found.chats)
        self._ask(Asking.SEARCH)
        self._show()
        self._note(f"{imported}. {found.left_out}" if found.left_out else str(imported))

    def _search(self, text: str) -> None:
        """Search for `text` unless it has been, or is no longer what stands there."""
        if self.is_mounted and self._asking is Asking.SEARCH and text == self._line.value and text != self._searched:
            self._show()

    def _ask(self, asking: Asking, text: str = "") -> None:
        """Use the line for something else. The search comes back with it."""
        self._asking = asking
        with self.prevent(Input.Changed):
            self._line.value = self._searched if asking is Asking.SEARCH else text
        self._line.cursor_position = len(self._line.value)
        self._line.placeholder = asking.value
        self._line.focus()
        self._note("" if asking is Asking.SEARCH else asking.value)
        self.refresh_bindings()

    def _show(self) -> None:
        """The list as the store has it, for what is searched."""
        self._searched = self._line.value
        try:
            note = self._list.show(self._store, self._searched, self._open_chat_id)
        except MoeChatError as error:
            self._note(error.in_full, is_error=True)
        else:
            self._note(note)
        self.refresh_bindings()

    def _note(self, text: str, *, is_error: bool = False) -> None:
        note = self.query_one("#chats-note", Static)
        note.set_class(is_error, "-warning")
        note.update(visible(text))

    @property
    def _list(self) -> ChatList:
        return self.query_one(ChatList)

    @property
    def _line(self) -> Input:
        return self.query_one("#chats-line", Input)
