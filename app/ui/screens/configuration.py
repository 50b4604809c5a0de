"""What the engine runs with: the effective configuration, as it told."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.engine_link.bridge import EngineBridge
from app.ui.widgets.name_rows import name_rows


class ConfigurationScreen(ModalScreen[None]):
    """Names and values. Closed by any of its keys."""

    AUTO_FOCUS = ".sheet"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter", "dismiss", "Close")]

    def __init__(self, bridge: EngineBridge) -> None:
        super().__init__()
        self._ready = bridge.ready

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="sheet"):
            yield Static("Configuration, as the engine loaded it", classes="sheet-title")
            if self._ready is None:
                yield Static("It is known once the engine is ready.", markup=False)
            else:
                names = [name for name, _ in self._ready.effective]
                yield from name_rows(self._ready.effective, 2 + max(map(len, names), default=0))
            yield Static("esc closes", classes="sheet-close")
