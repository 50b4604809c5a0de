"""MEMORY: the byte budget, what it is planned for, and what the process really holds."""

from __future__ import annotations

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading
from engine.config import format_bytes
from engine.events import MemoryUse, Snapshot

_COLOURS = ("$memory-one", "$memory-two", "$memory-three", "$memory-four", "$memory-five")
_MAX_LEGEND_LINES = 3
_UNIT_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
"""What the units of `format_bytes` stand for."""


class MemoryBar(Panel):
    """A bar as wide as the budget, divided into its planned parts."""

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        memory = snapshot.memory
        held = f"{format_bytes(memory.rss_bytes)} held of {format_bytes(memory.budget_bytes)}"
        is_over = memory.rss_bytes > memory.budget_bytes
        return [
            heading(
                "MEMORY", held if memory.budget_bytes else figures.DASH, width, "$error" if is_over else "$foreground"
            ),
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
        """The parts by name, in the budget's own unit."""
        unit = format_bytes(memory.budget_bytes).split()[-1]
        entries = [
            Content.assemble(("■ ", _COLOURS[index % len(_COLOURS)]), (f"{name} ", "$quiet"), in_unit(num_bytes, unit))
            for index, (name, num_bytes) in enumerate(memory.parts)
        ]
        lines = [Content("")]
        for entry in [*entries, Content.styled(unit, "$quiet")]:
            gap = " " if lines[-1].cell_length else ""
            if lines[-1].cell_length + len(gap) + entry.cell_length > width:
                lines.append(entry)
            else:
                lines[-1] = Content.assemble(lines[-1], gap, entry)
        return lines[:_MAX_LEGEND_LINES]


def in_unit(num_bytes: int, unit: str) -> str:
    """`num_bytes` as a number of `unit`, one of those `format_bytes` writes."""
    value = num_bytes / _UNIT_BYTES[unit]
    return f"{value:.1f}" if unit in ("GiB", "TiB") else f"{value:.0f}"
