"""MEMORY: the byte budget, what it is planned for, and what the process really holds."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.ui.widgets.charts import Part, divided_bar, key_of
from app.ui.widgets.panel import Panel, heading, pairs, table, wrapped
from engine.events import MemoryUse, Snapshot

_COLOURS = ("$memory-one", "$memory-two", "$memory-three", "$memory-four", "$memory-five", "$memory-six")
_PATTERNS = "█▓▒░▚▞"
_MAX_LEGEND_LINES = 3
_UNIT_BYTES = {"MiB": 2**20, "GiB": 2**30}


class MemoryBar(Panel):
    """A bar as wide as the budget, divided into its planned parts."""

    TITLE: ClassVar[str] = "MEMORY"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("budget", "held")

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        memory = snapshot.memory
        return [self._heading(memory, width), self._bar(memory, width), *self._legend(memory, width)]

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        memory = snapshot.memory
        unit, budget = unit_of(memory.budget_bytes), memory.budget_bytes
        planned = sum(num_bytes for _, num_bytes in memory.parts)
        listed = [*memory.parts, ("not planned for", budget - planned)]
        rows = [(name, f"{in_unit(size, unit)} {unit}", figures.percent(size, budget)) for name, size in listed]
        return [
            self._heading(memory, width),
            Content(""),
            *[self._bar(memory, width)] * 2,
            *self._legend(memory, width),
            Content(""),
            Content.styled("planned parts of the budget", "bold $quiet"),
            *table(rows),
            Content(""),
            *pairs(
                width,
                ("held now", _of_budget(memory.rss_bytes, memory)),
                ("held at most", _of_budget(memory.peak_rss_bytes, memory)),
            ),
        ]

    def _heading(self, memory: MemoryUse, width: int) -> Content:
        if not memory.budget_bytes:
            return heading(self.TITLE, figures.DASH, width)
        colour = "$error" if memory.rss_bytes > memory.budget_bytes else "$foreground"
        unit = unit_of(memory.budget_bytes)
        held = f"{in_unit(memory.rss_bytes, unit)} held of {in_unit(memory.budget_bytes, unit)} {unit}"
        return heading(self.TITLE, held, width, colour)

    def _parts(self, memory: MemoryUse) -> list[Part]:
        """Parts differ by colour, and without colours by their pattern."""
        return [
            Part(name, _COLOURS[index % len(_COLOURS)], _PATTERNS[index % len(_PATTERNS)])
            for index, (name, _) in enumerate(memory.parts)
        ]

    def _bar(self, memory: MemoryUse, width: int) -> Content:
        sizes = [num_bytes for _, num_bytes in memory.parts]
        return divided_bar(sizes, memory.budget_bytes, width, self._parts(memory), can_colour=not self.app.no_color)

    def _legend(self, memory: MemoryUse, width: int) -> list[Content]:
        """The parts by name, in the budget's own unit."""
        unit = unit_of(memory.budget_bytes)
        entries = [
            key_of(part, in_unit(num_bytes, unit), can_colour=not self.app.no_color)
            for part, (_, num_bytes) in zip(self._parts(memory), memory.parts, strict=True)
            if num_bytes
        ]
        return wrapped([*entries, Content.styled(unit, "$quiet")], width, " ")[:_MAX_LEGEND_LINES]


def _of_budget(num_bytes: int, memory: MemoryUse) -> str:
    unit = unit_of(memory.budget_bytes)
    return f"{in_unit(num_bytes, unit)} {unit} ({figures.percent(num_bytes, memory.budget_bytes)} of the budget)"


def unit_of(budget_bytes: int) -> str:
    """The unit in which all of a budget is written: MiB while that takes four digits at most."""
    return "MiB" if budget_bytes < 10_000 * _UNIT_BYTES["MiB"] else "GiB"


def in_unit(num_bytes: int, unit: str) -> str:
    """`num_bytes` as a number of `unit`."""
    value = num_bytes / _UNIT_BYTES[unit]
    return f"{value:.1f}" if unit == "GiB" else f"{value:.0f}"
