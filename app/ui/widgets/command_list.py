"""The list of commands above the prompt, open while a command is typed."""

from __future__ import annotations

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from app.commands.typed import Completion
from app.formatting.sanitise import visible

MAX_SHOWN = 8


class CommandList(Widget):
    """What the line in the prompt can become; the prompt keeps the focus and passes the keys on."""

    class Chosen(Message):
        """A line was clicked."""

        def __init__(self, completion: Completion) -> None:
            super().__init__()
            self.completion = completion

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.display = False
        self._completions: list[Completion] = []
        self._place = 0

    @property
    def chosen(self) -> Completion | None:
        """The highlighted line."""
        return self._completions[self._place] if self._completions else None

    def show(self, completions: list[Completion]) -> None:
        """Offer these; none: close."""
        if completions != self._completions:
            self._completions, self._place = completions, 0
            self.display = bool(completions)
            self.refresh(layout=True)

    def move(self, step: int) -> None:
        """Highlight the next or the previous line, around the ends."""
        if self._completions:
            self._place = (self._place + step) % len(self._completions)
            self.refresh()

    def render(self) -> Content:
        first = self._window
        shown = self._completions[first : first + MAX_SHOWN]
        width = max((len(completion.text) for completion in shown), default=0)
        lines = []
        for number, (text, meaning, _) in enumerate(shown, first):
            here = number == self._place
            style = "bold $primary" if here else "$foreground"
            parts = [("▸ " if here else "  ", "$primary"), (visible(text).ljust(width + 2), style)]
            lines.append(Content.assemble(*parts, (visible(meaning), "$quiet")))
        if len(self._completions) > MAX_SHOWN:
            lines.append(Content.styled(f"  {self._place + 1} of {len(self._completions)}", "$quiet"))
        return Content("\n").join(lines)

    def on_click(self, event: Click) -> None:
        """A click chooses."""
        number = self._window + event.y
        if event.y < MAX_SHOWN and number < len(self._completions):
            self.post_message(self.Chosen(self._completions[number]))

    @property
    def _window(self) -> int:
        """The number of the first line shown."""
        return max(0, min(self._place - MAX_SHOWN // 2, len(self._completions) - MAX_SHOWN))
