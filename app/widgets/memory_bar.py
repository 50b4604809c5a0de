"""MEMORY: the byte budget, what it is planned for, and what the process really holds."""

from __future__ import annotations

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading
from engine.events import MemoryUse, Snapshot

_COLOURS = ("$memory-one", "$memory-two", "$memory-three", "$memory-four", "$memory-five")
_PATTERNS = "█▓▒░▚▞"
_MAX_LEGEND_LINES = 3
_UNIT_BYTES = {"MiB": 2**20, "GiB": 2**30}


class MemoryBar(Panel):
    """A bar as wide as the budget, divided into its planned parts."""

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        memory = snapshot.memory
        unit = unit_of(memory.budget_bytes)
        held = f"{in_unit(memory.rss_bytes, unit)} held of {in_unit(memory.budget_bytes, unit)} {unit}"
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
            parts.append((self._glyph(index) * (end - filled), _COLOURS[index % len(_COLOURS)]))
            filled = max(filled, end)
        return Content.assemble(*parts, ("·" * (width - filled), "$quiet"))

    def _glyph(self, index: int) -> str:
        """Parts differ by colour, and without colours by their pattern."""
        return _PATTERNS[index % len(_PATTERNS)] if self.app.no_color else "█"

    def _legend(self, memory: MemoryUse, width: int) -> list[Content]:
        """The parts by name, in the budget's own unit."""
        unit = unit_of(memory.budget_bytes)
        entries = [
            Content.assemble(
                (f"{self._glyph(index) if self.app.no_color else '■'} ", _COLOURS[index % len(_COLOURS)]),
                (f"{name} ", "$quiet"),
                in_unit(num_bytes, unit),
            )
            for index, (name, num_bytes) in enumerate(memory.parts)
            if num_bytes
        ]
        lines = [Content("")]
        for entry in [*entries, Content.styled(unit, "$quiet")]:
            gap = " " if lines[-1].cell_length else ""
            if lines[-1].cell_length + len(gap) + entry.cell_length > width:
                lines.append(entry)
            else:
                lines[-1] = Content.assemble(lines[-1], gap, entry)
        return lines[:_MAX_LEGEND_LINES]


def unit_of(budget_bytes: int) -> str:
    """The unit in which all of a budget is written: MiB while that takes four digits at most."""
    return "MiB" if budget_bytes < 10_000 * _UNIT_BYTES["MiB"] else "GiB"


def in_unit(num_bytes: int, unit: str) -> str:
    """`num_bytes` as a number of `unit`."""
    value = num_bytes / _UNIT_BYTES[unit]
    return f"{value:.1f}" if unit == "GiB" else f"{value:.0f}"
