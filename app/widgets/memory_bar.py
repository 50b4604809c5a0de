"""MEMORY: the byte budget, what it is planned for, and what the process really holds."""

from __future__ import annotations

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading
from engine.config import format_bytes
from engine.events import MemoryUse, Snapshot

_COLOURS = ("$memory-one", "$memory-two", "$memory-three", "$memory-four", "$memory-five")
_MAX_LEGEND_LINES = 2


class MemoryBar(Panel):
    """A bar as wide as the budget, divided into its planned parts."""

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        memory = snapshot.memory
        held = f"{format_bytes(memory.rss_bytes)} held of {format_bytes(memory.budget_bytes)}"
        is_over = memory.rss_bytes > memory.budget_bytes
        return [
            heading("MEMORY", held if memory.budget_bytes else figures.DASH, width, "$error" if is_over else "$foreground"),
            self._bar(memory, width),
            *self._legend(memory, width),
        ]

    def _bar(self, memory: MemoryUse, width: int) -> Content:
        parts: list[tuple[str, str]] = []
        edge = filled = 0
        for index, (_, num_bytes) in enumerate(memory.parts):
            edge += num_bytes
            end = min(width, round(width * edge / memory.budget_bytes)) if memory.budget_bytes else 0
            parts.append(("█" * (end - filled), _COLOURS[index % len(_COLOURS)]))
            filled = max(filled, end)
        return Content.assemble(*parts, ("░" * (width - filled), "$faint"))

    def _legend(self, memory: MemoryUse, width: int) -> list[Content]:
        lines: list[Content] = [Content("")]
        for index, (name, num_bytes) in enumerate(memory.parts):
            entry = Content.assemble(("■ ", _COLOURS[index % len(_COLOURS)]), (f"{name} ", "$quiet"), format_bytes(num_bytes))
            gap = "  " if lines[-1].cell_length else ""
            if lines[-1].cell_length + len(gap) + entry.cell_length > width:
                if len(lines) == _MAX_LEGEND_LINES:
                    break
                lines.append(entry)
            else:
                lines[-1] = Content.assemble(lines[-1], gap, entry)
        return lines
