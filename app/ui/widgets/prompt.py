"""The prompt: grows with its text; enter sends, shift+enter and ctrl+j break the line, up and down recall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from app.chat.attachments import dropped
from app.chat.pasted import PastedTexts
from app.chat.prompt_history import PromptHistory
from app.formatting.sanitise import visible
from app.ui.key_map import bindings_of
from app.ui.widgets.text_field import TextField

_NEWLINES = ("shift+enter", "ctrl+j", "alt+enter")


class Prompt(TextField):
    """A multi-line input. Long texts that are pasted show as a mark; `whole_text` has them."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("prompt")]

    @dataclass
    class Submitted(Message):
        """The user sent a text."""

        text: str
        shown: str
        """As it stood there: with marks for long texts that were pasted."""

    @dataclass
    class CommandListKey(Message):
        """A key for the list of commands, while it is open: up, down, tab or enter."""

        key: str

    def __init__(self, widget_id: str | None = None, history: PromptHistory | None = None) -> None:
        super().__init__(
            id=widget_id,
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            compact=True,
            highlight_cursor_line=False,
        )
        self.placeholder = "Type a message  ·  / for commands  ·  @ for files"
        self.has_command_list = False
        """A list of commands is open: it takes the keys that move in it."""
        self._history = history or PromptHistory()
        self._place = len(self._history.texts)
        self._draft = ""
        self._pasted = PastedTexts()

    @property
    def whole_text(self) -> str:
        """What would be sent."""
        return self._pasted.whole(self.text).strip()

    async def _on_key(self, event: events.Key) -> None:
        if (self.has_command_list and event.key in ("up", "down", "tab", "enter")) or self._takes(event.key):
            event.stop()
            event.prevent_default()
            if self.has_command_list and event.key in ("up", "down", "tab", "enter"):
                self.post_message(self.CommandListKey(event.key))
        else:
            await super()._on_key(event)

    def _takes(self, key: str) -> bool:
        """Whether a key did what only the prompt makes of it."""
        if key == "enter":
            self.submit()
        elif key in _NEWLINES:
            self.insert("\n")
        elif key == "backspace":
            return self._delete_mark()
        elif key == "up":
            return self.navigator.is_first_wrapped_line(self.cursor_location) and self._walk(-1)
        elif key == "down":
            return self.navigator.is_last_wrapped_line(self.cursor_location) and self._walk(1)
        else:
            return False
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        """A long text becomes a mark: laying it out would take seconds. The path of a file that was dropped on the
        terminal becomes a mention of it."""
        event.stop()
        event.prevent_default()
        text = self._pasted.shorten(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        if names := dropped(event.text):
            text = f"{names} "
        self.replace(visible(text), *self.selection, maintain_selection_offset=False)
        self.focus()

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

    def undo(self) -> None:
        """Take back the last edits. The text may get shorter: the base class then looks for the cursor behind its end
        when the scrollbar goes."""
        if self.history.undo_stack:
            self.move_cursor(self.document.start)
        super().undo()

    def redo(self) -> None:
        """Make them again."""
        if self.history.redo_stack:
            self.move_cursor(self.document.start)
        super().redo()

    @property
    def text_before_cursor(self) -> str:
        """The line up to the cursor; empty while something is selected."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column] if self.selection.is_empty else ""

    def replace_before_cursor(self, length: int, text: str) -> None:
        """Put a text in place of so many characters before the cursor."""
        row, column = self.cursor_location
        self.history.checkpoint()
        self.replace(text, (row, column - length), (row, column))
        self.move_cursor((row, column - length + len(text)))

    def set_text(self, text: str) -> None:
        """Replace the text, cursor at the end. A long one shows as a mark. Undo restores the text before."""
        self._replace_all(self._pasted.shorten(text))

    def give_back(self, text: str) -> None:
        """Put a text that was not used before what has been typed meanwhile."""
        draft = self.text
        if text:
            self._replace_all(self._pasted.shorten(text) + ("\n" + draft if draft else ""))

    def submit(self) -> None:
        """Send what there is, if anything. What is typed from now on is the next message."""
        text, shown = self.whole_text, self.text
        if not text:
            return
        draft = self._draft if self._place < len(self._history.texts) else ""
        if not draft:
            self._pasted = PastedTexts()
        self._place, self._draft = len(self._history.texts), ""
        self.text = draft  # what was begun before an earlier text was recalled
        self.move_cursor(self.document.end)
        self.post_message(self.Submitted(text, shown))

    def clear_draft(self) -> bool:
        """Empty the prompt; undo and the history restore the text. False when it is empty."""
        texts = [self._pasted.whole(text).strip() for text in (self._draft, self.text)]
        if not self.whole_text:
            return False
        self._place, self._draft = len(self._history.texts), ""
        for text in filter(None, texts):
            self.remember(text)
        self._replace_all("")
        return True

    def remember(self, text: str) -> None:
        """Keep a text where the up key finds it."""
        was_at_end = self._place >= len(self._history.texts)
        self._history.add(text)
        if was_at_end:
            self._place = len(self._history.texts)

    def _replace_all(self, text: str) -> None:
        self.history.checkpoint()
        self.replace(text, self.document.start, self.document.end)
        self.history.checkpoint()
        self.move_cursor(self.document.end)

    def _walk(self, step: int) -> bool:
        """Show an earlier or later text that was sent; False when there is none that way."""
        texts = self._history.texts
        place = self._place + step
        if not 0 <= place <= len(texts):
            return False
        shown = self._pasted.whole(self.text)
        if self._place == len(texts):
            self._draft = self.text
        elif shown.strip() and shown != texts[self._place]:
            self._history.add(shown)  # an earlier text that was changed and not sent
        self._place = place
        if place == len(texts):
            self._replace_all(self._draft)
        else:
            self.set_text(texts[place])
        return True

    def _delete_mark(self) -> bool:
        """A mark goes as a whole."""
        row, column = self.cursor_location
        length = self._pasted.mark_before(self.text_before_cursor)
        if length:
            self.delete((row, column - length), (row, column))
        return bool(length)
