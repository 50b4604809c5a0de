"""The first start: which model, and how much memory. The menu of domains comes next. Enter takes what is proposed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.settings.schema import setting_named
from app.settings.setting import Value
from app.ui.screens.model_picker import about_typed, model_fields, typed_model
from app.ui.widgets.key_line import KeyLine
from app.ui.widgets.model_list import ModelList
from engine.config import DEMO_MODEL, EngineConfig, format_bytes, parse_bytes
from engine.errors import ConfigError

_LEAST_BYTES = 64 << 20
"""A typed budget below this can only be a slip; what a model needs is told when it is loaded."""


class MemoryChoice(NamedTuple):
    """One answer to the second question, as settings."""

    title: str
    about: str
    settings: dict[str, Value | None]


def memory_choices(model: str) -> tuple[MemoryChoice, ...]:
    """What is proposed for a model, the default first."""
    half = MemoryChoice("Half of the experts", "the others are loaded as they are needed", {"model.residency": "50%"})
    quarter = MemoryChoice("A quarter of the experts", "less memory, more waiting", {"model.residency": "25%"})
    if model == DEMO_MODEL:
        return (
            MemoryChoice("Half of the experts", "so that offloading can be seen", {}),
            quarter,
            MemoryChoice("All of the experts", "nothing is offloaded", {"model.residency": "100%"}),
        )
    return (MemoryChoice("What is free", "as much as this machine can spare", {}), half, quarter)


class Welcome(Screen[dict[str, Value | None] | None]):
    """Dismisses with the settings that were chosen, or with None where the user went back."""

    AUTO_FOCUS = "ModelList"
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-low"), (22, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Choose", key_display="enter"),
        Binding("tab", "app.focus_next", "Type it"),
        Binding("escape", "back", "Back", priority=True),
    ]

    def __init__(self, folders: Sequence[Path], model: str, config: EngineConfig) -> None:
        """`config` says the budget that costs are told for."""
        super().__init__()
        self._folders = folders
        self._config = config
        self._model = model
        self._chosen: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="welcome"):
            yield Static(_greeting(), id="welcome-greeting")
            with Vertical(id="welcome-model"):
                yield Static(_heading(1, "Which model?"), classes="welcome-heading")
                yield from model_fields(self._folders, self._model, self._config)
            with Vertical(id="welcome-memory"):
                yield Static(_heading(2, "How much of it on the device?"), classes="welcome-heading")
                yield OptionList(id="memory-choices", markup=False)
                yield Input(
                    placeholder=f"or type a budget for everything, such as 6GiB{_of_machine()}",
                    id="budget",
                    compact=True,
                )
                yield Static(id="budget-about")
        yield KeyLine()

    def on_mount(self) -> None:
        self._show_step()

    def on_model_list_chosen(self, message: ModelList.Chosen) -> None:
        self._choose_model(message.entry.location)

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "model-name":
            self.query_one("#model-about", Static).update(about_typed(typed_model(event.value, self._config)))
        else:
            self.query_one("#budget-about", Static).update(Content.styled(visible(_complaint(event.value)), "$error"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not event.value.strip():
            self.action_choose()
        elif event.input.id == "model-name":
            entry = typed_model(event.value, self._config)
            if entry is not None and entry.is_supported:
                self._choose_model(entry.location)
        elif not _complaint(event.value):
            self._finish({"model.memory": event.value.strip()})

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._finish(memory_choices(self._chosen or self._model)[event.option_index].settings)

    def action_choose(self) -> None:
        """Choose what is highlighted."""
        self.query_one("#models" if self._chosen is None else "#memory-choices", OptionList).action_select()

    def action_back(self) -> None:
        """The question before; from the first one, go on with what is set."""
        if self._chosen is None:
            self.dismiss(None)
        else:
            self._chosen = None
            self._show_step()

    def _choose_model(self, model: str) -> None:
        self._chosen = model
        options = self.query_one("#memory-choices", OptionList)
        options.set_options(
            Option(Content.assemble((f"{choice.title:<26}", "bold"), (choice.about, "$quiet")))
            for choice in memory_choices(model)
        )
        options.highlighted = 0
        self._show_step()

    def _finish(self, memory: dict[str, Value | None]) -> None:
        budget: dict[str, Value | None] = memory or {"model.residency": None, "model.memory": None}
        self.dismiss({"model.name": self._chosen, **budget})

    def _show_step(self) -> None:
        is_first = self._chosen is None
        self.query_one("#welcome-model").display = is_first
        self.query_one("#welcome-memory").display = not is_first
        self.query_one("#models" if is_first else "#memory-choices").focus()


def _greeting() -> Content:
    return Content.assemble(
        ("Welcome to moe-chat", "bold $primary"),
        "\n",
        ("Mixture-of-Experts models bigger than the memory they are given", "$quiet"),
    )


def _heading(number: int, question: str) -> Content:
    return Content.assemble((question, "bold"), (f"   step {number} of 3 · enter chooses", "$quiet"))


def _of_machine() -> str:
    """What memory the machine has; empty where the system does not say."""
    try:
        return f"; this machine has {format_bytes(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))}"
    except (ValueError, OSError):
        return ""


def _complaint(text: str) -> str:
    """Why a typed budget is none; empty: it is one, or nothing was typed."""
    setting = setting_named("model.memory")
    assert setting is not None
    try:
        typed = setting.parse(text)
    except ConfigError as error:
        return error.hint
    if isinstance(typed, str) and typed and parse_bytes(typed) < _LEAST_BYTES:
        return "The engine alone takes more: give a size such as 6GiB."
    return ""
