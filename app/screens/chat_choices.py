"""Questions that the chat asks over itself: what to do when the context is full, another wording, a yes or no."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from app.sanitise import visible
from app.settings.key_map import key_for

TRIM, NEW_CHAT, BRANCH = "trim", "new", "branch"


class ContextChoice(ModalScreen[str | None]):
    """The context is full: leave out the oldest turns, begin a new chat, branch from an earlier turn, or nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave it")]

    def __init__(self, what: str, *, can_trim: bool) -> None:
        super().__init__()
        self._what, self._can_trim = what, can_trim

    def compose(self) -> ComposeResult:
        trim = "The model no longer sees them; they stay in the chat, marked."
        if not self._can_trim:
            trim = "There is no older turn to leave out."
        branch = key_for(self, "turn.branch")
        options = (
            (TRIM, "Leave out the oldest turns", trim),
            (NEW_CHAT, "New chat", "An empty chat in the same domain; a question that was not answered goes along."),
            (BRANCH, "Go back", f"Choose an earlier turn; {branch} goes on from there in a chat of its own."),
        )
        with Vertical(classes="sheet"):
            yield Static("The context is full", classes="sheet-title")
            yield Static(visible(self._what), markup=False)
            yield OptionList(
                *(
                    Option(
                        Content.assemble((title, "bold"), "\n", (meaning, "$quiet")),
                        id=name,
                        disabled=name == TRIM and not self._can_trim,
                    )
                    for name, title, meaning in options
                )
            )
            yield Static("enter chooses · esc leaves everything as it is", classes="sheet-close")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


class EditQuestion(ModalScreen[str | None]):
    """A question in another wording."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave it", priority=True),
        Binding("enter,ctrl+s", "send", "Send", priority=True),
        Binding("shift+enter,ctrl+j,alt+enter", "newline", "New line", priority=True),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static("Ask differently", classes="sheet-title")
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

    def action_newline(self) -> None:
        """Break the line."""
        self.query_one(TextArea).insert("\n")


class Confirm(ModalScreen[bool]):
    """A yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,enter", "dismiss(False)", "No"),
    ]

    def __init__(self, title: str, what: str) -> None:
        super().__init__()
        self._title, self._what = title, what

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(visible(self._title), classes="sheet-title", markup=False)
            yield Static(visible(self._what), markup=False)
            yield Static("y does it · esc leaves everything as it is", classes="sheet-close")


class TextSheet(ModalScreen[None]):
    """Lines to read."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss(None)", "Close")]

    def __init__(self, title: str, lines: list[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(visible(self._title), classes="sheet-title", markup=False)
            yield Static(visible("\n".join(self._lines)), markup=False)
            yield Static("esc closes", classes="sheet-close")
