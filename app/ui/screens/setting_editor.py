"""Giving one setting another value: by a choice, a line, a text, or by pressing the key that is meant."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.settings.setting import Kind, Setting, Value
from app.ui.key_map import key_text
from app.ui.screens.confirm import TakesAllKeys
from app.ui.widgets.text_field import TextField
from engine.errors import ConfigError


class Edited(NamedTuple):
    """The new value; None: the default."""

    value: Value | None


class SettingEditor(ModalScreen[Edited | None]):
    """What all editors share. Dismisses with the new value, or with None when it stays."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "keep", "Keep", priority=True)]
    HINT = "enter saves · esc keeps"

    def __init__(self, setting: Setting, text: str) -> None:
        """`text` is the value that is there, as it would be typed."""
        super().__init__()
        self.setting = setting
        self.text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet editor"):
            yield Static(self.setting.title, classes="sheet-title", markup=False)
            yield Static(self.setting.meaning, classes="editor-meaning", markup=False)
            yield from self.compose_field()
            yield Static(Content.styled(self._about(), "$quiet"), id="editor-about")
            yield Static(self.HINT, classes="sheet-close")

    def compose_field(self) -> ComposeResult:
        """The part that takes the value."""
        yield from ()

    def action_keep(self) -> None:
        """Leave it as it is."""
        self.dismiss(None)

    def _about(self) -> str:
        default = self.setting.text(self.setting.default)
        return f"{self.setting.range_text} · default: {default or self.setting.unset}"

    def _complain(self, text: str) -> None:
        self.query_one("#editor-about", Static).update(Content.styled(visible(text), "$error"))

    def _finish(self, text: str) -> None:
        try:
            self.dismiss(Edited(self.setting.parse(text)))
        except ConfigError as error:
            self._complain(error.in_full)


class ChoiceEditor(SettingEditor):
    """A list of what it may be."""

    AUTO_FOCUS = "OptionList"

    def compose_field(self) -> ComposeResult:
        offered = self.setting.choices if self.setting.default is not None else ("", *self.setting.choices)
        self._offered = offered
        yield OptionList(
            *(Option(choice or self.setting.unset) for choice in offered), id="editor-choices", markup=False
        )

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = self._offered.index(self.text) if self.text in self._offered else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._finish(self._offered[event.option_index])


class LineEditor(SettingEditor):
    """One line. Empty means the default."""

    AUTO_FOCUS = "Input"
    HINT = "enter saves · empty: the default · esc keeps"

    def compose_field(self) -> ComposeResult:
        yield Input(self.text, placeholder=self.setting.unset, id="editor-line")

    def on_input_changed(self, event: Input.Changed) -> None:
        try:
            self.setting.parse(event.value)
        except ConfigError as error:
            self._complain(error.in_full)
        else:
            self.query_one("#editor-about", Static).update(Content.styled(self._about(), "$quiet"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._finish(event.value)


class TextEditor(SettingEditor):
    """A text of several lines. Empty means the default."""

    AUTO_FOCUS = "TextArea"
    HINT = "ctrl+s saves · empty: the default · esc keeps"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+s", "save", "Save", priority=True)]

    def compose_field(self) -> ComposeResult:
        yield TextField(self.text, id="editor-text", soft_wrap=True, tab_behavior="focus", compact=True)

    def action_save(self) -> None:
        """Take what is written."""
        self._finish(self.query_one(TextArea).text)


class KeyEditor(TakesAllKeys, SettingEditor):
    """Waits for the key that is meant, those of the app too, and takes it when enter confirms it."""

    HINT = "press the key · enter saves it · esc keeps"

    def compose_field(self) -> ComposeResult:
        yield Static(self._shown(""), id="editor-key")

    def on_mount(self) -> None:
        self._pressed = ""

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "enter" and self._pressed:
            self.dismiss(Edited(self._pressed))
        elif event.key not in ("enter", "escape"):
            self._pressed = event.key
            self.query_one("#editor-key", Static).update(self._shown(event.key))

    def _shown(self, key: str) -> Content:
        if not key:
            return Content.styled(visible(self.text) or "no key", "$primary")
        return Content.assemble((visible(self.text) or "no key", "$quiet"), " → ", (key_text(key), "bold $primary"))


def editor_for(setting: Setting, text: str) -> SettingEditor:
    """The editor for this kind of setting."""
    kinds: dict[Kind, type[SettingEditor]] = {
        Kind.CHOICE: ChoiceEditor,
        Kind.LONG_TEXT: TextEditor,
        Kind.KEYS: KeyEditor,
    }
    return kinds.get(setting.kind, LineEditor)(setting, text)
