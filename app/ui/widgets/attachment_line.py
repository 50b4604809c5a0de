"""The line above the prompt: the files that the message names, what they cost, and what they leave of the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content
from textual.widget import Widget

from app.formatting import figures
from app.formatting.sanitise import visible


class ShownFile(NamedTuple):
    """A file that the message names."""

    name: str
    num_tok: int | None = None
    """What it costs; None: not known yet."""
    problem: str = ""
    """Why it cannot be sent."""


class AttachmentLine(Widget):
    """Hidden while the message names no file."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.display = False
        self._content = Content("")

    def show(self, files: Sequence[ShownFile], left_tok: int | None, total_tok: int) -> None:
        """Show the files. `left_tok`: what the context has left for the answer; None: not known."""
        self.display = bool(files)
        if not files:  # with every key that is typed: nothing is laid out again
            return
        content = Content("\n").join([*map(_file, files), _left(left_tok, total_tok)])
        if content != self._content:
            self._content = content
            self.refresh(layout=True)

    def render(self) -> Content:
        return self._content


def _file(file: ShownFile) -> Content:
    name = (f"@ {visible(file.name)}  ", "$primary")
    if file.problem:
        return Content.assemble(name, (visible(file.problem), "$warning"))
    cost = figures.DASH if file.num_tok is None else f"{file.num_tok:,}"
    return Content.assemble(name, (f"{cost} tok", "$quiet"))


def _left(left_tok: int | None, total_tok: int) -> Content:
    if left_tok is None or total_tok <= 0:
        return Content.styled(f"context left: {figures.DASH}", "$quiet")
    if left_tok < 0:
        return Content.styled(f"too much for the context of {total_tok:,} tokens by {-left_tok:,}", "bold $warning")
    return Content.styled(f"context left: {left_tok:,} of {total_tok:,} tokens", "$quiet")
