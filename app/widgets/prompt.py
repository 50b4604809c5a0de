"""The prompt: grows with its text; enter sends, shift+enter and ctrl+j break the line, up and down recall."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.actions import SkipAction
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea


class Prompt(TextArea):
    """A multi-line input."""

    @dataclass
    class Submitted(Message):
        """The user sent a text."""

        text: str

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(
            id=widget_id,
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            compact=True,
            highlight_cursor_line=False,
        )
        self.placeholder = "Type a message"
        self._sent: list[str] = []
        self._place = 0
        self._draft = ""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._submit()
        elif event.key in ("shift+enter", "ctrl+j"):
            event.stop()
            event.prevent_default()
            self.insert("\n")
        elif (event.key == "up" and self.cursor_location[0] == 0 and self._walk(-1)) or (
            event.key == "down" and self.cursor_location[0] == self.document.line_count - 1 and self._walk(1)
        ):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)

    def render_line(self, y: int) -> Strip:
        """A line of the text; nothing while there is no room, where wrapping the placeholder would fail."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(0)

    def action_copy(self) -> None:
        """Copy the prompt's own selection; without one ctrl+c is the app's."""
        if not self.selected_text:
            raise SkipAction
        super().action_copy()

    def action_cursor_line_end(self, select: bool = False) -> None:
        """In an empty prompt the key is the transcript's."""
        if not self.text:
            raise SkipAction
        super().action_cursor_line_end(select)

    def action_cursor_page_up(self) -> None:
        """The prompt is short: paging is the transcript's."""
        raise SkipAction

    def action_cursor_page_down(self) -> None:
        """The prompt is short: paging is the transcript's."""
        raise SkipAction

    def set_text(self, text: str) -> None:
        """Replace the text, cursor at the end."""
        self.text = text
        self.move_cursor(self.document.end)

    def _submit(self) -> None:
        text = self.text.strip()
        if not text:
            return
        self._sent.append(text)
        self._place, self._draft = len(self._sent), ""
        self.text = ""
        self.post_message(self.Submitted(text))

    def _walk(self, step: int) -> bool:
        """Show an earlier or later text that was sent; False when there is none that way."""
        place = self._place + step
        if not 0 <= place <= len(self._sent):
            return False
        if self._place == len(self._sent):
            self._draft = self.text
        self._place = place
        self.set_text(self._draft if place == len(self._sent) else self._sent[place])
        return True
