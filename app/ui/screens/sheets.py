"""Sheets over the screen: lines to read, names and what belongs to them, another wording of a question."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea

from app.engine_link.bridge import EngineBridge
from app.formatting.sanitise import visible
from app.ui.widgets.name_table import NameTable
from app.ui.widgets.text_field import TextField


class ConfigurationScreen(ModalScreen[None]):
    """Names and values. Closed by any of its keys."""

    AUTO_FOCUS = ".sheet"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "dismiss", "Close")]

    def __init__(self, bridge: EngineBridge) -> None:
        super().__init__()
        self._ready = bridge.ready

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="sheet"):
            yield Static("Configuration, as the engine loaded it", classes="sheet-title")
            if self._ready is None:
                yield Static("It is known once the engine is ready.", markup=False)
            else:
                names = [name for name, _ in self._ready.effective]
                yield NameTable(self._ready.effective, 2 + max(map(len, names), default=0))
            yield Static("esc closes", classes="sheet-close")


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
            field = TextField(self._text, soft_wrap=True, show_line_numbers=False, compact=True, id="edit-text")
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

    AUTO_FOCUS = ".sheet"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "dismiss(None)", "Close")]

    def __init__(self, title: str, lines: list[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="sheet"):
            yield Static(visible(self._title), classes="sheet-title", markup=False)
            yield Static(visible("\n".join(self._lines)), markup=False)
            yield Static("esc closes", classes="sheet-close")
