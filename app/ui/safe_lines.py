"""The last step before a line reaches the terminal: no character in it is one that a terminal obeys.

Widgets make such characters visible (`app.formatting.sanitise.visible`); where one did not, they are left out here.
They have no width, so the line stays as wide as it was laid out.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from app.formatting.sanitise import is_obeyed, without_obeyed


class SafeLines(LineFilter):
    """Takes what a terminal would obey out of every line of every widget."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments where all of them are safe; `background` does not matter."""
        if not any(is_obeyed(segment.text) for segment in segments if not segment.control):
            return segments
        return [
            segment if segment.control else Segment(without_obeyed(segment.text), segment.style) for segment in segments
        ]
