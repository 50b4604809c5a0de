"""Choosing the model: the demo, what lies in known folders and in the Hugging Face cache, or a name typed in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.formatting.model_words import model_costs, model_shape
from app.formatting.sanitise import visible
from app.ui.widgets.model_list import ModelList
from engine.checkpoint.catalogue import ModelEntry
from engine.commands.model_menu import describe_model
from engine.config import EngineConfig


def typed_model(text: str, config: EngineConfig) -> ModelEntry | None:
    """What was typed, as a model: a place on this machine, with its costs at the budget of `config`, or a name for the
    hub. None: nothing was typed."""
    typed = text.strip()
    if not typed:
        return None
    path = Path(os.path.expanduser(typed))
    looks_like_path = typed.startswith((".", "/", "~")) or typed.count("/") != 1 or typed.endswith(".gguf")
    if path.exists() or looks_like_path:
        return describe_model(path, config)
    return ModelEntry(typed, typed, is_supported=True, reason="")


def model_fields(folders: Sequence[Path], current: str, config: EngineConfig) -> ComposeResult:
    """The models to choose from, a line to type another one, and what is known of that; `config` says the budget that
    costs are told for."""
    yield ModelList(folders, current, config)
    yield Input(
        placeholder="or type a folder, a GGUF file, Hugging Face owner/model[:Q4_K_M]", id="model-name", compact=True
    )
    yield Static(id="model-about")


class ModelPicker(ModalScreen[str | None]):
    """Dismisses with what `--model` would take, or None: the model stays."""

    AUTO_FOCUS = "ModelList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "keep", "Keep the model", priority=True),
        Binding("tab", "app.focus_next", "Type a folder or file"),
    ]

    def __init__(self, folders: Sequence[Path], current: str, config: EngineConfig) -> None:
        """`config` says the budget that costs are told for."""
        super().__init__()
        self._folders = folders
        self._config = config
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet picker"):
            yield Static("Model", classes="sheet-title")
            yield from model_fields(self._folders, self._current, self._config)
            yield Static("enter chooses · tab: type a folder or file · esc keeps the model", classes="sheet-close")

    def on_model_list_chosen(self, message: ModelList.Chosen) -> None:
        self.dismiss(message.entry.location)

    def on_input_changed(self, event: Input.Changed) -> None:
        entry = typed_model(event.value, self._config)
        self.query_one("#model-about", Static).update(about_typed(entry))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        entry = typed_model(event.value, self._config)
        if entry is None:
            self.query_one(ModelList).action_select()
        elif entry.is_supported:
            self.dismiss(entry.location)

    def action_keep(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


def about_typed(entry: ModelEntry | None) -> Content:
    """Whether what was typed can be loaded."""
    if entry is None:
        return Content("")
    if not entry.is_supported:
        return Content.styled(f"✕ {visible(entry.reason)}", "$error")
    about = " · ".join(filter(None, (model_shape(entry), model_costs(entry))))
    return Content.styled(f"● {about or 'from Hugging Face: downloaded if it is not here'}", "$success")
