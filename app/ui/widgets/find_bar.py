"""The line in which text to find is typed, with how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static


class FindBar(Horizontal):
    """Hidden until it is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down,f3", "step(1)", "Next", priority=True),
        Binding("shift+enter,up,shift+f3", "step(-1)", "Previous", priority=True),
        Binding("escape", "close", "Close", priority=True),
    ]

    @dataclass
    class Changed(Message):
        """Something else is to be found."""

        query: str

    @dataclass
    class Stepped(Message):
        """On to the next match, or back."""

        step: int

    class Closed(Message):
        """No more finding."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static("find ", classes="find-label", markup=False)
        yield Input(id="find-input", compact=True, select_on_focus=True)
        yield Static("", id="find-count", markup=False)

    def open(self, query: str = "") -> None:
        """Show it, and take the focus."""
        was_open, self.display = self.display, True
        field = self.query_one(Input)
        if query:
            field.value = query
        elif field.value and not was_open:
            self.post_message(self.Changed(field.value))
        field.focus()

    def open_found(self, text: str) -> None:
        """Show it with what has been found already; the focus stays where it is."""
        self.display = True
        field = self.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = text

    def show_count(self, text: str) -> None:
        """Such as `3 of 17`."""
        self.query_one("#find-count", Static).update(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(event.value))

    def action_step(self, step: int) -> None:
        """The next or the previous match."""
        self.post_message(self.Stepped(step))

    def action_close(self) -> None:
        """Close it."""
        self.display = False
        self.post_message(self.Closed())
