"""The models on this machine: those that can be chosen, and those that cannot, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.formatting.model_words import COSTS_EXPLAINED, model_costs, model_shape
from app.formatting.sanitise import visible
from engine.checkpoint.catalogue import ModelEntry
from engine.commands.model_menu import list_models
from engine.config import DEMO_MODEL, EngineConfig

_NAME_WIDTH = 34
_DEMO_NAME = "The demo, SmolLM2-135M"


def _title(entry: ModelEntry) -> str:
    """Its name for a person."""
    return _DEMO_NAME if entry.location == DEMO_MODEL else visible(entry.name)


def _name_width(entries: Iterable[ModelEntry]) -> int:
    """Columns that hold the names but for the longest ones."""
    return min(_NAME_WIDTH, max((len(_title(entry)) for entry in entries), default=0))


def _line(entry: ModelEntry, current: str, width: int) -> Content:
    """One model, its name in `width` columns or more; one that cannot be chosen is grey, with the reason."""
    mark = "▸ " if entry.location == current else "  "
    name = f"{_title(entry):<{width}}  "
    if not entry.is_supported:
        return Content.assemble(("✕ ", "$quiet"), (name, "$quiet"), (visible(entry.reason), "$quiet"))
    note = model_shape(entry) or "built on first use" if entry.location == DEMO_MODEL else model_shape(entry)
    costs = f"\n  {visible(about)}" if (about := model_costs(entry)) else ""
    return Content.assemble((mark, "$primary"), (name, "bold"), (note + costs, "$quiet"))


_LOOKING = ModelEntry(DEMO_MODEL, DEMO_MODEL, is_supported=True, reason="")


class ModelList(OptionList):
    """Begins with the demo; the others appear once the disk has been searched, which is done in a thread."""

    @dataclass
    class Chosen(Message):
        """A model was chosen."""

        entry: ModelEntry

    def __init__(self, folders: Sequence[Path], current: str, config: EngineConfig) -> None:
        """`config` says the budget that costs are told for."""
        super().__init__(id="models", markup=False)
        self._folders = folders
        self._config = config
        self._current = current
        self.entries: tuple[ModelEntry, ...] = (_LOOKING,)
        self.is_complete = False

    def on_mount(self) -> None:
        self._show(self.entries)
        self.run_worker(self._search, thread=True, exclusive=True)

    def _search(self) -> None:
        entries = list_models(self._folders, self._config)
        self.app.call_from_thread(self._found, entries)

    def _found(self, entries: tuple[ModelEntry, ...]) -> None:
        self.is_complete = True
        self._show(entries)

    def _show(self, entries: tuple[ModelEntry, ...]) -> None:
        """Those that can be chosen first."""
        self.entries = tuple(sorted(entries, key=lambda entry: not entry.is_supported))
        before = self.entries[self.highlighted].location if self.highlighted is not None else self._current
        width = _name_width(self.entries)
        self.set_options(
            Option(_line(entry, self._current, width), disabled=not entry.is_supported) for entry in self.entries
        )
        if any(entry.costs for entry in self.entries):
            self.add_option(Option(Content.styled(f"  {COSTS_EXPLAINED}", "$quiet"), disabled=True))
        places = [place for place, entry in enumerate(self.entries) if entry.location == before and entry.is_supported]
        self.highlighted = next(iter(places), 0)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self.entries[event.option_index]))
