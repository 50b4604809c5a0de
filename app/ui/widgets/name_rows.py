"""Names at the left, what belongs to them at the right, wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from textual.containers import Horizontal
from textual.widgets import Static

from app.formatting.sanitise import visible


def name_rows(rows: Iterable[tuple[str, str]], width: int) -> Iterator[Horizontal]:
    """One row a pair; names take `width` columns."""
    for name, text in rows:
        label = Static(visible(name), classes="row-name", markup=False)
        label.styles.width = width
        yield Horizontal(label, Static(visible(text), classes="row-text", markup=False), classes="name-row")
