"""Names, and beside each what belongs to it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.style import Style
from rich.table import Table
from rich.text import Text

from app.formatting.sanitise import visible
from app.ui.widgets.text_lines import TextLines


class NameTable(TextLines):
    """One row a pair. A single widget: a long sheet made of three a row takes a second to open."""

    def __init__(self, rows: Iterable[tuple[str, str]], width: int) -> None:
        """Names take `width` columns."""
        super().__init__()
        self._rows, self._width = tuple(rows), width

    def renderable(self, *, is_seen: bool) -> Table:
        table = Table.grid(expand=True)
        table.add_column(width=self._width, style=Style(color=self.app.theme_variables["primary"]))
        table.add_column(ratio=1)
        for name, text in self._rows:
            table.add_row(Text(visible(name)), Text(visible(text), overflow="fold"))
        return table
