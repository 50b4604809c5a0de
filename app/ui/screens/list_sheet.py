"""A sheet with a list to choose from: the bin, the presets, the versions of a chat, the blocks of code of an answer."""

from __future__ import annotations

from typing import Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from app.formatting.sanitise import visible
from app.ui.widgets.key_line import KeyLine

_Chosen = TypeVar("_Chosen")


class ListSheet(ModalScreen[_Chosen | None], Generic[_Chosen]):
    """A title, the list, what stands below it, and the keys. Dismisses with None when the user goes back."""

    AUTO_FOCUS = "OptionList"

    def __init__(self, heading: str) -> None:
        super().__init__()
        self._heading = heading

    def compose(self) -> ComposeResult:
        with Vertical(classes="list-sheet"):
            yield Static(self._heading, classes="list-title", markup=False)
            yield OptionList()
            yield from self.compose_below()
            yield KeyLine()

    def compose_below(self) -> ComposeResult:
        """What stands between the list and the keys: a line for `note`."""
        yield Static(id="list-note", markup=False)

    @property
    def listed(self) -> OptionList:
        """The list."""
        return self.query_one(OptionList)

    def note(self, text: str) -> None:
        """Say something below the list."""
        self.query_one("#list-note", Static).update(visible(text))

    def action_choose(self) -> None:
        """Choose the highlighted one."""
        self.listed.action_select()

    def action_back(self) -> None:
        """Back to where the sheet was opened."""
        self.dismiss(None)
