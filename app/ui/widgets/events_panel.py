"""EVENTS: a short log of what the engine did."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.telemetry.event_log import MAX_LINES, Kind, LogLine
from app.ui.widgets.panel import Panel, heading
from engine.events import Snapshot

_STYLES = {
    Kind.READY: ("●", "$exact"),
    Kind.MODE: ("⇄", "$approx"),
    Kind.DOMAIN: ("◇", "$primary"),
    Kind.PROMPT: ("»", "$secondary"),
    Kind.ANSWER: ("✓", "$exact"),
    Kind.LATE: ("…", "$accent"),
    Kind.EVICTIONS: ("↺", "$accent"),
    Kind.NOTICE: ("i", "$quiet"),
    Kind.ERROR: ("✗", "$error"),
}


class EventsPanel(Panel):
    """The last lines that fit; maximised all of them, the newest first."""

    TITLE: ClassVar[str] = "EVENTS"

    def blank_lines(self, width: int) -> list[Content]:
        return self._column_lines(width)

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        return self._column_lines(width)

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        log = self.history.log.lines
        return [self._heading(width), Content(""), *(_line(line, width) for line in reversed(log))]

    def tell(self) -> None:
        """Something may have been written to the log."""
        self._compose_lines()

    def _column_lines(self, width: int) -> list[Content]:
        room = max(1, self.size.height - 1)
        shown = list(self.history.log.lines)[-room:]
        return [self._heading(width), *(_line(line, width) for line in shown)]

    def _heading(self, width: int) -> Content:
        num_lines = len(self.history.log.lines)
        figure = f"{num_lines} since start" if num_lines < MAX_LINES else f"the last {MAX_LINES}"
        return heading(self.TITLE, figure if num_lines else figures.DASH, width, "$quiet")


def _line(line: LogLine, width: int) -> Content:
    glyph, colour = _STYLES[line.kind]
    text = Content.assemble((f"{line.clock} ", "$quiet"), (f"{glyph} ", colour), line.text.replace("\n", " "))
    return text.truncate(width, ellipsis=True)
