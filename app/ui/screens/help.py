"""Keys, what the words on screen mean, and where things are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.commands.table import COMMANDS, GROUPS
from app.formatting.terms import TERMS
from app.storage.paths import AppPaths
from app.ui.key_map import KeyMap
from app.ui.widgets.name_table import NameTable
from app.ui.widgets.panel import Maximisable

_KEY_WIDTH = 22


def key_rows(key_map: KeyMap, group: str) -> Iterator[tuple[str, str]]:
    """(keys, meaning) of every action of a group that has a key."""
    for action in COMMANDS:
        if action.group == group and (keys := key_map.keys_text(action) or (f"/{action.name}" if action.slash else "")):
            yield keys, f"{action.title}: {action.meaning}"


class HelpScreen(ModalScreen[None]):
    """Closed by any of its keys."""

    AUTO_FOCUS = ".sheet"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,enter", "dismiss", "Close")]

    def __init__(self, key_map: KeyMap, panel: Maximisable | None = None) -> None:
        """`panel`: the one in focus; its words and keys come first."""
        super().__init__()
        self._key_map = key_map
        self._panel = panel

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="sheet"):
            if self._panel is not None:
                yield Static(self._panel.TITLE, classes="sheet-title")
                yield NameTable(((term, TERMS[term]) for term in self._panel.EXPLAINED), 12)
            for group in sorted(GROUPS, key=lambda group: self._panel is None or group != "Panels"):
                if rows := tuple(key_rows(self._key_map, group)):
                    yield Static(group, classes="sheet-title")
                    yield NameTable(rows, _KEY_WIDTH)
            yield Static("Words", classes="sheet-title")
            yield NameTable(TERMS.items(), 12)
            yield Static("Files", classes="sheet-title")
            kept = AppPaths.from_environment().listed()
            yield NameTable(((name, str(path)) for name, path in kept), 12)
            yield Static(
                "esc closes · the palette lists what has no key · keys can be changed in the settings",
                classes="sheet-close",
            )
