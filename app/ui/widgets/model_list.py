"""The models on this machine: those that can be chosen, and those that cannot, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.ui.widgets import model_words
from engine.checkpoint.catalogue import ModelEntry, find_models
from engine.config import DEMO_MODEL

_LOOKING = ModelEntry(DEMO_MODEL, DEMO_MODEL, is_supported=True, reason="")


class ModelList(OptionList):
    """Begins with the demo; the others appear once the disk has been searched, which is done in a thread."""

    @dataclass
    class Chosen(Message):
        """A model was chosen."""

        entry: ModelEntry

    def __init__(self, folders: Sequence[Path], current: str, widget_id: str) -> None:
        super().__init__(id=widget_id, markup=False)
        self._folders = folders
        self._current = current
        self.entries: tuple[ModelEntry, ...] = (_LOOKING,)
        self.is_complete = False

    def on_mount(self) -> None:
        self._show(self.entries)
        self.run_worker(self._search, thread=True, exclusive=True)

    def _search(self) -> None:
        entries = find_models(self._folders)
        self.app.call_from_thread(self._found, entries)

    def _found(self, entries: tuple[ModelEntry, ...]) -> None:
        self.is_complete = True
        self._show(entries)

    def _show(self, entries: tuple[ModelEntry, ...]) -> None:
        """Those that can be chosen first."""
        self.entries = tuple(sorted(entries, key=lambda entry: not entry.is_supported))
        before = self.entries[self.highlighted].location if self.highlighted is not None else self._current
        width = model_words.name_width(self.entries)
        self.set_options(
            Option(model_words.line(entry, self._current, width), disabled=not entry.is_supported)
            for entry in self.entries
        )
        places = [place for place, entry in enumerate(self.entries) if entry.location == before and entry.is_supported]
        self.highlighted = next(iter(places), 0)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self.entries[event.option_index]))
