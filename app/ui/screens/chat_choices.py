"""Sheets over the chat: another wording of a question, lines to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from app.formatting.sanitise import visible


class AboutChat:
    """A sheet about the chat below it: it closes when another chat comes there."""

    def leave(self) -> None:
        """Keep what was typed: the sheet is about to close."""


class EditQuestion(AboutChat, ModalScreen[str | None]):
    """A question in another wording."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave it", priority=True),
        Binding("enter,ctrl+s", "send", "Send", priority=True),
        Binding("shift+enter,ctrl+j,alt+enter", "newline", "New line", priority=True),
    ]

    def __init__(self, text: str, keep: Callable[[str], None]) -> None:
        """`keep` takes a wording that was begun and not sent."""
        super().__init__()
        self._text, self._keep = text, keep

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static("Edit the question", classes="sheet-title")
            field = TextArea(self._text, soft_wrap=True, show_line_numbers=False, compact=True, id="edit-text")
            field.move_cursor(field.document.end)
            yield field
            yield Static(
                "enter sends, in a branch of the chat: the earlier version is kept · esc leaves it as it is",
                classes="sheet-close",
            )

    def action_send(self) -> None:
        """Ask it, if there is something."""
        text = self.query_one(TextArea).text.strip()
        if text:
            self.dismiss(text)

    def action_leave(self) -> None:
        """Leave the question as it is."""
        self.leave()
        self.dismiss(None)

    def leave(self) -> None:
        """Another wording is not lost."""
        text = self.query_one(TextArea).text.strip()
        if text and text != self._text.strip():
            self._keep(text)

    def action_newline(self) -> None:
        """Break the line."""
        self.query_one(TextArea).insert("\n")


class TextSheet(AboutChat, ModalScreen[None]):
    """Lines to read."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "dismiss(None)", "Close")]

    def __init__(self, title: str, lines: list[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(visible(self._title), classes="sheet-title", markup=False)
            yield Static(visible("\n".join(self._lines)), markup=False)
            yield Static("esc closes", classes="sheet-close")
