"""The first screen: what shall this chat be about? The engine is already starting behind it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from app.domains import Domain, all_domains
from app.engine_bridge import EngineBridge
from app.widgets.activity_line import ActivityLine
from engine.events import Event, Snapshot

_ORNAMENT = "10120312100132101201310210131201"
"""A row of expert states, as digits of their codes."""

_CELL_STYLES = ("$expert-host", "$expert-resident", "$expert-arriving", "$expert-in-use")
_NAME_WIDTH, _PURPOSE_WIDTH = 17, 40


def _masthead() -> Content:
    cells: list[str | tuple[str, str]] = [("▀▀", _CELL_STYLES[int(code)]) for code in _ORNAMENT]
    return Content.assemble(
        ("moe-chat", "bold $primary"), "\n", ("a mixture of experts larger than its memory", "$quiet"), "\n\n", *cells
    )


def _question(num_domains: int) -> Content:
    return Content.assemble(
        ("What is this chat about?", "bold"), (f"   arrows and enter, a click, or 1 to {num_domains}", "$quiet")
    )


class DomainMenu(Screen[Domain | None]):
    """A list of domains; dismisses with the chosen one, or None when the user goes back."""

    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Choose", key_display="enter"),
        Binding("escape", "back", "Back"),
        *(Binding(str(number), f"pick({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, bridge: EngineBridge, *, can_go_back: bool) -> None:
        super().__init__()
        self._bridge = bridge
        self._can_go_back = can_go_back
        self._domains = all_domains()

    def compose(self) -> ComposeResult:
        with Vertical(id="menu"):
            yield Static(_masthead(), id="masthead")
            yield Static(_question(len(self._domains)), id="menu-question")
            yield OptionList(
                *(Option(self._entry(number, domain)) for number, domain in enumerate(self._domains, 1)), id="domains"
            )
            yield ActivityLine("menu-activity")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = 0
        self._show_engine()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Going back needs something to go back to."""
        return self._can_go_back if action == "back" else True

    async def engine_events(self, happened: list[Event]) -> None:
        """Show how far the engine is."""
        self._show_engine()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Nothing here shows figures."""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._domains[event.option_index])

    def action_choose(self) -> None:
        """Choose the highlighted domain."""
        self.query_one(OptionList).action_select()

    def action_pick(self, number: int) -> None:
        """Choose a domain by its number."""
        if number <= len(self._domains):
            self.dismiss(self._domains[number - 1])

    def action_back(self) -> None:
        """Leave the menu without a choice."""
        self.dismiss(None)

    def _show_engine(self) -> None:
        activity = self.query_one(ActivityLine)
        if self._bridge.ready is not None and self._bridge.is_ready:
            activity.show_ready(self._bridge.ready)
        else:
            activity.show_engine(self._bridge)

    @staticmethod
    def _entry(number: int, domain: Domain) -> Content:
        return Content.assemble(
            (f"{number}  ", "$quiet"),
            (f"{domain.title:<{_NAME_WIDTH}}", "bold"),
            (f"{domain.purpose:<{_PURPOSE_WIDTH}}", "$foreground 80%"),
            ("no profile yet", "$quiet"),
        )
