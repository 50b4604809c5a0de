"""The last line: the keys that do something now. One widget, where textual's Footer takes one for each key and makes
them again whenever the focus changes."""

from __future__ import annotations

from dataclasses import replace

from textual import events
from textual.binding import ActiveBinding, Binding
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

ALWAYS = "app.help"
"""Shown even where others find no room."""
_GAP = 2


class KeyLine(Widget):
    """Keys and their words, those of what has the focus first; a click does what the key does."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: list[tuple[Binding, str, bool]] = []
        """Binding, how its key is written, and whether it would do something."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_updated)
        self.call_after_refresh(self._bindings_updated, self.screen)

    def on_resize(self) -> None:
        self.refresh()

    def _bindings_updated(self, screen: Screen[object]) -> None:
        if not self.is_attached or self.app.screen is not self.screen or not self.app.app_focus:
            return
        shown, actions = [], set()
        for active in sorted(screen.active_bindings.values(), key=lambda active: active.node is not screen.focused):
            binding = active.binding
            if binding.show and binding.action not in actions:
                actions.add(binding.action)
                shown.append((binding, self.app.get_key_display(binding), active.enabled))
        shown.sort(key=lambda item: item[0].id == ALWAYS)
        if shown != self._shown:
            self._shown = shown
            self.refresh()

    def render(self) -> Content:
        parts: list[str | tuple[str, str]] = []
        for binding, key, is_enabled in self._fitting():
            style = "bold $primary" if is_enabled else "$faint"
            parts += [(key, style), (f" {binding.description}", "$quiet"), " " * _GAP]
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        """Do what the key under the mouse does."""
        start = self.gutter.left
        for binding, key, _ in self._fitting():
            end = start + len(key) + 1 + len(binding.description)
            if start <= event.x < end:
                self.app.simulate_key(binding.key)
                return
            start = end + _GAP

    def _fitting(self) -> list[tuple[Binding, str, bool]]:
        """Those there is room for."""
        width = self.content_size.width
        fitting = list(self._shown)
        while (
            fitting
            and sum(len(key) + 1 + len(binding.description) + _GAP for binding, key, _ in fitting) > width + _GAP
        ):
            if len(fitting) == 1:
                return []
            del fitting[-2]
        return fitting


def with_description(active: dict[str, ActiveBinding], binding_id: str, description: str) -> dict[str, ActiveBinding]:
    """Bindings of a screen, one of them called differently."""
    return {
        key: entry._replace(binding=replace(entry.binding, description=description))
        if entry.binding.id == binding_id
        else entry
        for key, entry in active.items()
    }
