"""The one dialog that asks for a yes before something is lost."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from app.domains.domain import title_of
from app.domains.profile_book import ProfileBook
from app.formatting.sanitise import visible

_ALONE_S = 0.03
"""An answer is one key alone. What follows it sooner is text that arrives in a burst, such as a paste."""

_YES = ("y", "Y")
_ANSWERS = (*_YES, "n", "N")


class TakesAllKeys:
    """A screen that handles every key itself: while it is on top, no action of the app runs."""


class Confirm(TakesAllKeys, ModalScreen[bool]):
    """Dismisses with True when y was pressed, with False on any other key. Whoever opens it holds the ids of what it
    names, so that the answer is about these whatever happens meanwhile."""

    ACTION_SCOPE: ClassVar[str] = "confirm"

    def __init__(self, title: str, what: str) -> None:
        super().__init__()
        self._title, self._what = title, what
        self._heard = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(visible(self._title), classes="sheet-title", markup=False)
            yield Static(visible(self._what), markup=False)
            yield Static("y: yes · any other key: no", classes="sheet-close")

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self.hear(event.character or "")

    def hear(self, typed: str) -> str:
        """Take a key. Returns text that was no answer after all and is to be typed elsewhere; the dialog is gone then.

        Any key but y closes the dialog, as does whatever follows y at once. An n alone is an answer, no text.
        """
        if typed in _ANSWERS and not self._heard:
            self._heard = typed
            self.set_timer(_ALONE_S, self._answer)
            return ""
        return self.refuse(typed)

    def refuse(self, text: str) -> str:
        """Close with False; returns the text with what was heard before it."""
        if self.is_current:
            self.dismiss(False)
        return self._heard + text

    def _answer(self) -> None:
        if self.is_current:
            self.dismiss(self._heard in _YES)


def ask_to_stop_building(app: App[object], book: ProfileBook) -> None:
    """Ask whether the task that runs now is to be stopped. The answer is not taken for one that begins meanwhile."""
    task = book.task
    if task is None or not task.is_build or task.is_cancelling:
        return

    def answered(is_meant: bool | None) -> None:
        if is_meant and book.task is task:
            book.cancel()

    title = f"Stop building the profile of {title_of(task.domain)}?"
    app.push_screen(Confirm(title, "What was recorded so far is lost; an earlier profile stays as it is."), answered)
