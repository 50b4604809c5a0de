"""The presets, to choose one, delete one, and restore it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.settings.preset_command import HOW_TO
from app.settings.presets import NONE, PresetError, Presets
from app.ui.key_map import bindings_of, key_for
from app.ui.screens.list_sheet import ListSheet
from app.ui.screens.sheets import AboutChat


class PresetsScreen(AboutChat, ListSheet[str]):
    """Dismisses with the name to choose, with NONE for no preset, or with None where nothing changes."""

    ACTION_SCOPE: ClassVar[str] = "preset"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("preset")]

    def __init__(self, presets: Presets, chosen: str) -> None:
        """`chosen` is the name of the chat's preset; empty: it has none."""
        super().__init__("Presets")
        self._presets, self._chosen = presets, chosen
        self._names: list[str] = []
        self._deleted = ""

    def on_mount(self) -> None:
        self._show(HOW_TO)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_delete(self) -> None:
        """Delete the highlighted one; it can be restored."""
        name = self._highlighted
        if name == NONE:
            return
        try:
            self._presets.delete(name)
        except PresetError as error:
            self._show(error.in_full)
            return
        self._deleted = name
        self._show(f"Deleted {name}; {key_for(self, 'preset.undo')} restores it.")

    def action_undo(self) -> None:
        """Restore the one that was deleted last."""
        if not self._deleted:
            return
        try:
            self._presets.restore(self._deleted)
        except PresetError as error:
            self._show(error.in_full)
            return
        restored, self._deleted = self._deleted, ""
        self._show(f"Restored {restored}.")

    @property
    def _highlighted(self) -> str:
        at = self.listed.highlighted
        return self._names[at] if at is not None else NONE

    def _show(self, note: str) -> None:
        before = self.listed.highlighted
        try:
            self._names = [NONE, *self._presets.names()]
        except PresetError as error:
            self._names, note = [NONE], error.in_full
        self.listed.set_options(map(self._option, self._names))
        first = self._names.index(self._chosen) if self._chosen in self._names else 0
        self.listed.highlighted = first if before is None else min(before, len(self._names) - 1)
        self.note(note)

    def _option(self, name: str) -> Option:
        here = ("here · ", "$primary") if name == (self._chosen or NONE) else ""
        if name == NONE:
            return Option(Content.assemble(("none  ", "bold"), here, ("as in the settings", "$quiet")), id=name)
        try:
            about = (visible(self._presets.load(name).about), "$quiet")
        except PresetError as error:
            said = error.in_full.replace(f"{self._presets.folder}/", "")
            about = (visible(said), "$warning")
        return Option(Content.assemble((f"{visible(name)}  ", "bold"), here, about), id=name)
