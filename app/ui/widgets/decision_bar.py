"""A decision that waits above the prompt. It never takes the focus by itself, and nothing happens until one chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible


class Choice(NamedTuple):
    """One way to decide."""

    name: str
    title: str
    meaning: str
    is_possible: bool = True


class DecisionBar(Vertical):
    """Hidden while there is nothing to decide. A second decision takes the place of the first."""

    @dataclass
    class Chosen(Message):
        """One way was chosen, by its name."""

        name: str

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static(id="decision-title", markup=False)
        yield OptionList(id="decision-choices", markup=False)

    def show(self, what: str, choices: Sequence[Choice]) -> None:
        """Offer the choices; the focus stays where it is."""
        self.query_one("#decision-title", Static).update(visible(what))
        choices_list = self.query_one(OptionList)
        choices_list.set_options(
            Option(
                Content.assemble((choice.title, "bold"), "  ", (choice.meaning, "$quiet")),
                id=choice.name,
                disabled=not choice.is_possible,
            )
            for choice in choices
        )
        possible = (number for number, choice in enumerate(choices) if choice.is_possible)
        choices_list.highlighted = next(possible, None)
        self.display = True

    def take_focus(self) -> None:
        """The focus to the choices."""
        self.screen.set_focus(self.query_one(OptionList))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(str(event.option.id)))
