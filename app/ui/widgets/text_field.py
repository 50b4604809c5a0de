"""A field for several lines of text."""

from __future__ import annotations

from textual.actions import SkipAction
from textual.widgets import TextArea


class TextField(TextArea):
    """A TextArea in which no function key selects text: what is typed next would take its place unseen."""

    def action_select_line(self) -> None:
        """The key is the screen's."""
        raise SkipAction

    def action_select_all(self) -> None:
        """The key is the screen's."""
        raise SkipAction
