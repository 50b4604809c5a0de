"""A field for several lines of text."""

from __future__ import annotations

from textual.actions import SkipAction
from textual.widgets import TextArea


class TextField(TextArea):
    """A TextArea in which no function key selects text: what is typed next would take its place unseen. The keys that
    delete to an end of the line mean the line as it was typed, however it is wrapped."""

    def action_select_line(self) -> None:
        """The key is the screen's."""
        raise SkipAction

    def action_select_all(self) -> None:
        """The key is the screen's."""
        raise SkipAction

    def action_delete_to_start_of_line(self) -> None:
        """Delete what is before the cursor in its line; at the start of one, join it to the line above."""
        row, column = self.cursor_location
        if column and self.selection.is_empty:
            self.delete((row, 0), (row, column), maintain_selection_offset=False)
        else:
            super().action_delete_to_start_of_line()

    async def action_delete_to_end_of_line_or_delete_line(self) -> None:
        """Delete what is behind the cursor in its line; at the end of one, join it to the line below."""
        row, column = self.cursor_location
        end = len(self.document.get_line(row))
        if column < end and self.selection.is_empty:
            self.delete((row, column), (row, end), maintain_selection_offset=False)
        else:
            await super().action_delete_to_end_of_line_or_delete_line()
