"""The first screen: what shall this chat be about? The engine is already starting behind it."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static

from app import profile_words
from app.domains import Domain, all_domains, num_prompts
from app.engine_bridge import EngineBridge
from app.sanitise import visible
from app.settings.key_map import bindings_of, key_for
from app.widgets.activity_line import ActivityLine
from app.widgets.domain_list import DomainList
from app.widgets.key_line import KeyLine
from engine.events import Event, Snapshot

_ORNAMENT = "10120312100132101201310210131201"
"""A row of expert states, as digits of their codes."""

_CELL_STYLES = ("$expert-host", "$expert-resident", "$expert-arriving", "$expert-in-use")


class Deed(Enum):
    """What can be done to a profile, once it is confirmed."""

    BUILD = auto()
    DELETE = auto()


class Asking(NamedTuple):
    """What the menu wants to have confirmed."""

    deed: Deed
    domain: str


def _masthead() -> Content:
    cells: list[str | tuple[str, str]] = [("▀▀", _CELL_STYLES[int(code)]) for code in _ORNAMENT]
    return Content.assemble(
        ("moe-chat", "bold $primary"), "\n", ("a mixture of experts larger than its memory", "$quiet"), "\n\n", *cells
    )


def _question(num_domains: int) -> Content:
    last = min(num_domains, 9)
    return Content.assemble(
        ("What is this chat about?", "bold"), (f"   arrows and enter, a click, or 1 to {last}", "$quiet")
    )


class DomainMenu(Screen[Domain | None]):
    """A list of domains; dismisses with the chosen one, or None when the user goes back. Profiles are made here."""

    AUTO_FOCUS = "DomainList"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (104, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (22, "-tall")]  # noqa: RUF012
    ACTION_SCOPE: ClassVar[str] = "menu"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "Yes"),
        *bindings_of("menu"),
        *(Binding(str(number), f"pick({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, bridge: EngineBridge, proposed: str, *, can_go_back: bool) -> None:
        """`proposed` is the name of the domain that is highlighted first."""
        super().__init__()
        self._proposed = proposed
        self._bridge = bridge
        self._book = bridge.profiles
        self._can_go_back = can_go_back
        self._asking: Asking | None = None
        self._shown_keys: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="menu"):
            yield Static(_masthead(), id="masthead")
            yield Static(_question(len(all_domains())), id="menu-question")
            yield DomainList(self._book, self._proposed, "domains")
            yield Static(id="menu-detail", markup=False)
            yield ActivityLine("menu-activity", stop_action="menu.back")
        yield KeyLine()

    def on_mount(self) -> None:
        self._show_all()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key is there while it has something to act on."""
        is_asking, task = self._asking is not None, self._book.task
        match action:
            case "yes":
                return is_asking
            case "choose":
                return not is_asking
            case "ask_build":
                return not is_asking and task is None and self._book.is_known and bool(num_prompts(self._domain.name))
            case "ask_delete":
                return not is_asking and task is None and self._book.state(self._domain.name) is not None
            case "cancel_task":
                return not is_asking and task is not None and task.is_build
            case "back":
                return is_asking or self._can_go_back or self._can_stop
            case _:
                return True

    async def engine_events(self, happened: list[Event]) -> None:
        """Show how far the engine is, and what became of the profiles."""
        self._show_all()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Nothing here shows figures."""

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self._asking is not None and self._asking.domain != self._domain.name:
            self._asking = None
        self._show_all()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if self._asking is None:
            self.dismiss(self.query_one(DomainList).domains[event.option_index])

    def action_choose(self) -> None:
        """Choose the highlighted domain."""
        self.query_one(DomainList).action_select()

    def action_pick(self, number: int) -> None:
        """Choose a domain by its number."""
        domains = self.query_one(DomainList).domains
        if number <= len(domains):
            self.dismiss(domains[number - 1])

    def action_ask_build(self) -> None:
        """Say what building a profile does, and wait for a yes."""
        self._ask(Asking(Deed.BUILD, self._domain.name))

    def action_ask_delete(self) -> None:
        """Wait for a yes before deleting a profile."""
        self._ask(Asking(Deed.DELETE, self._domain.name))

    def action_yes(self) -> None:
        """Do what was asked about."""
        asked = self._asking
        self._ask(None)
        if asked is None or self._book.task is not None or not self._book.is_known:
            return  # the engine ended, or was put to work, meanwhile
        if asked.deed is Deed.BUILD:
            self._book.build(asked.domain)
        else:
            self._book.delete(asked.domain)
        self._show_all()

    def action_cancel_task(self) -> None:
        """Stop building a profile."""
        self._book.cancel()
        self._show_all()

    def action_back(self) -> None:
        """Take the question back; else stop building; else leave the menu without a choice; else stop loading."""
        if self._asking is not None:
            self._ask(None)
        elif self._can_stop_building:
            self.action_cancel_task()
        elif self._can_go_back:
            self.dismiss(None)
        elif self._bridge.stop_loading():
            self._show_all()

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Those of a screen; the key that goes back is called by what it would stop now."""
        active = super().active_bindings
        if self._asking is not None or not self._can_stop:
            return active
        return {
            key: entry._replace(binding=replace(entry.binding, description="Stop"))
            if entry.binding.id == "menu.back"
            else entry
            for key, entry in active.items()
        }

    @property
    def _can_stop_building(self) -> bool:
        task = self._book.task
        return task is not None and task.is_build and not task.is_cancelling

    @property
    def _can_stop(self) -> bool:
        """Going back would stop building, or loading, unless there is something to take back first."""
        is_load_stoppable = self._bridge.is_loading and not self._bridge.is_stopping_load
        return self._can_stop_building or (is_load_stoppable and not self._can_go_back)

    @property
    def _domain(self) -> Domain:
        """The highlighted domain; the first one before there is a list."""
        domains = self.query(DomainList)
        return domains.first().current if domains and domains.first().domains else all_domains()[0]

    def _ask(self, asking: Asking | None) -> None:
        self._asking = asking
        self._show_all()

    def _show_all(self) -> None:
        domains = self.query_one(DomainList)
        domains.show()
        self._update("#menu-question", _question(len(domains.domains)))
        colour = "$warning" if self._asking else "$quiet"
        self._update("#menu-detail", Content.styled(visible(self._detail()), colour))
        self._show_engine()
        book, bridge = self._book, self._bridge
        is_idle = (book.task is None, book.is_known, bridge.is_loading, bridge.is_down)
        keys = (self._asking, *is_idle, self._can_stop, book.names(), self._domain.name)
        if keys != self._shown_keys:  # the footer is composed anew: not on every beat
            self._shown_keys = keys
            self.refresh_bindings()

    def _update(self, selector: str, content: Content) -> None:
        static = self.query_one(selector, Static)
        if static.content != content:
            static.update(content)

    def _detail(self) -> str:
        name, snapshot = self._domain.name, self._bridge.snapshot
        if self._asking is None:
            return profile_words.detail(name, self._book.state(name), is_known=self._book.is_known)
        if self._asking.deed is Deed.DELETE:
            return profile_words.ask_delete(self._asking.domain, key_for(self, "menu.back"))
        tpot_ms = snapshot.timing.tpot_mean_ms if snapshot else None
        number, no_key = num_prompts(self._asking.domain), key_for(self, "menu.back")
        return profile_words.ask_build(self._asking.domain, number, tpot_ms, no_key)

    def _show_engine(self) -> None:
        activity = self.query_one(ActivityLine)
        if self._book.task is not None:
            activity.show_profile_task(self._book.task)
        elif self._bridge.ready is not None and self._bridge.is_ready:
            activity.show_ready(self._bridge.ready)
        else:
            activity.show_engine(self._bridge)
