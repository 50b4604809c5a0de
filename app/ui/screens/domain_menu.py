"""The first screen: what shall this chat be about? The engine is already starting behind it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static

from app.domains import profile_words
from app.domains.domain import Domain, all_domains, num_prompts, title_of
from app.engine_link.bridge import EngineBridge
from app.formatting.sanitise import visible
from app.ui.key_map import bindings_of
from app.ui.screens.confirm import Confirm, ask_to_stop_building
from app.ui.widgets.activity_line import ActivityLine
from app.ui.widgets.domain_list import DomainList
from app.ui.widgets.key_line import KeyLine, with_description
from engine.events import Event, Snapshot

_ORNAMENT = "10120312100132101201310210131201"
"""A row of expert states, as digits of their codes."""

_CELL_STYLES = ("$expert-host", "$expert-resident", "$expert-loading", "$expert-in-use")


def _masthead() -> Content:
    cells: list[str | tuple[str, str]] = [("▀▀", _CELL_STYLES[int(code)]) for code in _ORNAMENT]
    return Content.assemble(
        ("moe-chat", "bold $primary"),
        "\n",
        ("Mixture-of-Experts models bigger than the memory they are given", "$quiet"),
        "\n\n",
        *cells,
    )


_QUESTION = Content.assemble(("What is this chat about?", "bold"), ("   enter, or type a message", "$quiet"))


class DomainMenu(Screen[Domain | None]):
    """A list of domains; dismisses with the chosen one, or None when the user goes back. Profiles are made here."""

    AUTO_FOCUS = "DomainList"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (104, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-low"), (22, "-tall")]  # noqa: RUF012
    ACTION_SCOPE: ClassVar[str] = "menu"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of("menu"),
        # Only terminals that report alt apart from the character send these.
        *(Binding(f"alt+{number}", f"pick({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, bridge: EngineBridge, proposed: str, *, can_go_back: bool) -> None:
        """`proposed` is the name of the domain that is highlighted first."""
        super().__init__()
        self._proposed = proposed
        self._bridge = bridge
        self._book = bridge.profiles
        self._can_go_back = can_go_back
        self._shown_keys: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="menu"):
            yield Static(_masthead(), id="masthead")
            yield Static(_QUESTION, id="menu-question")
            yield DomainList(self._book, self._proposed, "domains")
            yield Static(id="menu-detail", markup=False)
            yield ActivityLine("menu-activity", stop_action="menu.back", cancel_action="menu.cancel")
        yield KeyLine()

    def on_mount(self) -> None:
        self._show_all()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key is there while it has something to act on."""
        task = self._book.task
        match action:
            case "ask_build":
                return task is None and self._book.is_known and bool(num_prompts(self.highlighted.name))
            case "ask_delete":
                return task is None and self._book.state(self.highlighted.name) is not None
            case "cancel_task":
                return task is not None and task.is_build
            case "back":
                return self._can_go_back or self._can_stop
            case _:
                return True

    async def engine_events(self, happened: list[Event]) -> None:
        """Show how far the engine is, and what became of the profiles."""
        self._show_all()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Nothing here shows figures."""

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._show_all()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
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
        """Build a profile of the highlighted domain, once confirmed."""
        name, snapshot = self.highlighted.name, self._bridge.snapshot
        tpot_ms = snapshot.timing.tpot_mean_ms if snapshot else None
        what = profile_words.about_building(num_prompts(name), tpot_ms)
        self._ask(f"Build a profile of {title_of(name)}?", what, partial(self._book.build, name))

    def action_ask_delete(self) -> None:
        """Delete the profile of the highlighted domain, once confirmed."""
        name = self.highlighted.name
        what = "It can be built again."
        self._ask(f"Delete the profile of {title_of(name)}?", what, partial(self._book.delete, name))

    def action_cancel_task(self) -> None:
        """Stop building a profile, once confirmed."""
        ask_to_stop_building(self.app, self._book)

    def action_back(self) -> None:
        """Leave the menu without a choice; where there is nothing behind it, stop building or loading."""
        if self._can_go_back:
            self.dismiss(None)
        elif self._can_stop_building:
            self.action_cancel_task()
        elif self._bridge.stop_loading():
            self._show_all()

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Those of a screen; the key that goes back is called by what it would stop now."""
        active = super().active_bindings
        return with_description(active, "menu.back", "Stop") if self._can_stop else active

    @property
    def _can_stop_building(self) -> bool:
        task = self._book.task
        return task is not None and task.is_build and not task.is_cancelling

    @property
    def _can_stop(self) -> bool:
        """Going back would stop building, or loading: there is nothing behind the menu."""
        is_load_stoppable = self._bridge.is_loading and not self._bridge.is_stopping_load
        return not self._can_go_back and (self._can_stop_building or is_load_stoppable)

    @property
    def highlighted(self) -> Domain:
        """The highlighted domain; the first one before there is a list."""
        domains = self.query(DomainList)
        return domains.first().current if domains and domains.first().domains else all_domains()[0]

    def _ask(self, title: str, what: str, do: Callable[[], None]) -> None:
        def answered(is_meant: bool | None) -> None:
            # meanwhile the engine may have ended, or been put to work
            if is_meant and self._book.task is None and self._book.is_known:
                do()
                self._show_all()

        self.app.push_screen(Confirm(title, what), answered)

    def _show_all(self) -> None:
        domains = self.query_one(DomainList)
        domains.show()
        self._update("#menu-detail", Content.styled(visible(self._detail()), "$quiet"))
        self._show_engine()
        book, bridge = self._book, self._bridge
        is_idle = (book.task is None, book.is_known, bridge.is_loading, bridge.is_down)
        keys = (*is_idle, self._can_stop, book.names(), self.highlighted.name)
        if keys != self._shown_keys:  # the footer is composed again: not on every beat
            self._shown_keys = keys
            self.refresh_bindings()

    def _update(self, selector: str, content: Content) -> None:
        static = self.query_one(selector, Static)
        if static.content != content:
            static.update(content)

    def _detail(self) -> str:
        name = self.highlighted.name
        return profile_words.detail(name, self._book.state(name), is_known=self._book.is_known)

    def _show_engine(self) -> None:
        activity = self.query_one(ActivityLine)
        if self._book.task is not None:
            activity.show_profile_task(self._book.task)
        elif self._bridge.ready is not None and self._bridge.is_ready:
            activity.show_ready(self._bridge.ready)
        else:
            activity.show_engine(self._bridge)
