"""An app under the user's settings: theme, keys and palette, model, and the screens that change them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.text import Text
from textual.actions import parse
from textual.app import App, SystemCommand
from textual.driver import Driver
from textual.filter import LineFilter
from textual.notifications import Notify
from textual.screen import Screen

from app.chat.answer_clock import AnswerEnd
from app.commands.table import COMMANDS, Command
from app.engine_link.bridge import EngineBridge
from app.formatting.alert import alert
from app.formatting.sanitise import visible
from app.process.crash_log import log_crash
from app.process.job_control import has_job_control
from app.settings.presets import PresetError, Presets
from app.settings.setting import Kind, Setting, Value
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.ui import themes
from app.ui.key_map import KeyMap
from app.ui.safe_lines import SafeLines
from app.ui.terminal_input import TerminalDriver
from engine.config import EngineConfig
from engine.errors import ConfigError, MoeChatError


class ConfiguredApp(App[None]):
    """What of the app has to do with settings. `settings_changed` tells what else has to follow."""

    def __init__(self, bridge: EngineBridge, settings: Settings, *, is_light_terminal: bool = False) -> None:
        super().__init__()
        self.bridge = bridge
        self.settings = settings
        self.key_map = KeyMap()
        self._safe_lines = SafeLines()
        self._is_light_terminal = is_light_terminal
        for theme in themes.load_themes():
            self.register_theme(theme)
        self._follow_theme()
        self._follow_keys()

    def get_driver_class(self) -> type[Driver]:
        """A driver whose reader no byte of the terminal ends."""
        return TerminalDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line of every widget goes through, the last of it what keeps the terminal from being commanded."""
        return [*super().get_line_filters(), self._safe_lines]

    def settings_changed(self) -> None:
        """Values changed that are neither the theme nor the engine's, or the keys."""

    def on_notify(self, event: Notify) -> None:
        """What is on the screen already is said anew, not once more below itself."""
        for said in list(self._notifications):
            if said.message == event.notification.message:
                self._unnotify(said, refresh=False)

    def tell_settings_problems(self) -> None:
        """Say what of the settings, and of the preset that they name, cannot be used."""
        for problem in (*self.settings.problems, *self.key_map.problems):
            self.notify(visible(problem), severity="warning", timeout=15, markup=False)
        try:
            Presets(AppPaths.from_environment().presets_dir).load_chosen(self.settings.text("chat.preset"))
        except PresetError as error:
            self.tell_error(error)

    def tell_error(self, error: MoeChatError) -> None:
        """Say what went wrong, and what to do about it."""
        self.notify(visible(error.in_full), severity="error", timeout=10, markup=False)

    # What the user does

    def action_settings(self) -> None:
        """Every setting."""
        from app.ui.screens.settings import SettingsScreen

        if not isinstance(self.screen, SettingsScreen):
            screen = SettingsScreen(self.settings, lambda: self.key_map, self.change_setting, self._needs_loading)
            self.push_screen(screen)

    def action_help(self) -> None:
        """Keys and words; those of a panel first where one has the focus or the whole screen."""
        from app.ui.screens.help import HelpScreen
        from app.ui.widgets.panel import Maximisable

        if not isinstance(self.screen, HelpScreen):
            around = self.focused.ancestors_with_self if self.focused else ()
            panel = next((widget for widget in around if isinstance(widget, Maximisable)), None)
            maximised = self.screen.query(Maximisable).filter(".-maximised")
            self.push_screen(HelpScreen(self.key_map, panel or (maximised.first() if maximised else None)))

    def action_show_configuration(self) -> None:
        """What the engine runs with."""
        from app.ui.screens.sheets import ConfigurationScreen

        if not isinstance(self.screen, ConfigurationScreen):
            self.push_screen(ConfigurationScreen(self.bridge))

    def call_user(self, answer: AnswerEnd) -> None:
        """Tell the user of the end of an answer, as the settings say, if the terminal is not in front or it took
        long."""
        is_long = answer.took_s >= self.settings.number("screen.notify_after")
        if is_long or not self.app_focus:
            self.send_to_terminal(alert(self.settings.text("screen.notify"), answer.words, os.environ))

    def send_to_terminal(self, sequence: str) -> None:
        """Write a control sequence, between what is drawn. None is made but in `app.formatting`."""
        if sequence and self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def action_suspend_process(self) -> None:
        """To the shell, with the rest of the job, such as the `make` that started the app and would wait for it."""
        if not has_job_control():
            self.notify("There is no shell to suspend to.", severity="warning", timeout=4)
        elif not self.is_headless:
            with self.suspend():
                os.kill(0, signal.SIGSTOP)

    def action_choose_model(self) -> None:
        """The models on this machine."""
        from app.ui.screens.model_picker import ModelPicker

        if not isinstance(self.screen, ModelPicker):
            picker = ModelPicker(
                self.settings.model_folders(), self.bridge.config.model, self.settings.config_of_others()
            )
            self.push_screen(picker, self._model_chosen)

    def action_command_palette(self) -> None:
        """Every action by name."""
        from app.ui.widgets.palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_save_screenshot(self) -> None:
        """The screen as an SVG file, and where it is."""
        from app.ui.screenshot import save_screenshot, screenshot_folder

        try:
            path = save_screenshot(self, screenshot_folder())
        except OSError as error:
            self.notify(visible(f"The screenshot could not be written: {error}"), severity="error", markup=False)
        else:
            self.notify(visible(f"Saved {path}"), timeout=8, markup=False)

    def action_load_settings(self) -> None:
        """Have the model loaded with what the settings say now; the chat stays."""
        try:
            self.bridge.load(self.settings.engine_config())
        except ConfigError as error:
            self.tell_error(error)

    def action_toggle_theme(self) -> None:
        """Dark or light; kept."""
        other = themes.other_mode(self.theme)
        self.settings.overrule(["screen.theme"])
        self.save_settings({"screen.theme": other})

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action that can be taken now, the screen's own first."""
        for action in sorted(COMMANDS, key=lambda action: action.scope == "app"):
            owner = self if action.scope == "app" else screen
            if action.call and action.in_palette and self._can_run(action, owner):
                keys = self.key_map.keys_text(action)
                about = f"{action.meaning} ({keys})" if keys else action.meaning
                yield SystemCommand(action.title, about, partial(self.run_action, action.call, owner))

    def _can_run(self, action: Command, owner: App[None] | Screen[object]) -> bool:
        """Whether `owner` has the action, and would take it now."""
        name, parameters = parse(action.call)[1:]
        is_there = owner is self or action.scope in getattr(owner, "ACTION_SCOPE", "").split()
        return is_there and bool(owner.check_action(name, parameters))

    def choose(self, chosen: Mapping[str, Value | None]) -> None:
        """Take, keep and load what was chosen about the model; for this run it wins over the command line."""
        changes = dict(chosen)
        model = changes.get("model.name")
        if isinstance(model, str) and (folders := self._with_folder_of(model)) is not None:
            changes["model.folders"] = folders
        self.settings.overrule(changes)
        self.save_settings(changes)
        self.action_load_settings()

    def save_settings(self, changes: Mapping[str, Value | None]) -> None:
        """Change settings of which it is known that they are valid. They hold even where they cannot be saved."""
        try:
            self.settings.change(changes)
        except OSError as error:
            self.settings.hold(changes)
            text = f"The settings could not be saved ({error.strerror or error}); they hold until you leave."
            self.notify(visible(text), severity="warning", timeout=10, markup=False)
        self._follow_theme()
        self.settings_changed()

    def _model_chosen(self, model: str | None) -> None:
        if model is not None:
            self.choose({"model.name": model})

    def _with_folder_of(self, model: str) -> list[str] | None:
        """The known folders and the model's own; None when it is known already, or no folder."""
        path, folders = Path(model).expanduser(), self.settings.model_folders()
        if not path.is_absolute() or any(folder in (path, path.parent) for folder in folders):
            return None
        return [*map(str, folders), str(path)]

    def _needs_loading(self) -> bool:
        """The engine runs, or loads, with other settings than those that hold."""
        running = self.bridge.config
        return self._wanted(running) != running

    def _wanted(self, running: EngineConfig) -> EngineConfig:
        try:
            return replace(self.settings.engine_config(), mode=running.mode, strategy=running.strategy)
        except ConfigError:
            return running

    def change_setting(self, row: Setting, value: Value | None) -> None:
        """Save one change of the settings screen, and follow it. Raises ConfigError and OSError."""
        if row.kind is Kind.KEYS:
            keys = row.text(value) or None
            problems = KeyMap({**self.settings.key_map, row.name: keys}).problems if keys else []
            if new := [problem for problem in problems if problem not in self.key_map.problems]:
                raise ConfigError(new[0])
            self.settings.change_keys(row.name, keys)
            self._follow_keys()
            self.settings_changed()
            return
        self.settings.change({row.key: value})
        self._follow_theme()
        if row.key == "offload.mode":
            self.bridge.ask_mode(self.settings.text(row.key))
        if row.key == "offload.strategy":
            self.bridge.ask_strategy(self.settings.text(row.key))
        self.settings_changed()

    def _follow_theme(self) -> None:
        wanted = themes.theme_for(self.settings.text("screen.theme"), is_light_terminal=self._is_light_terminal)
        if self.theme != wanted:
            self.theme = wanted

    def _follow_keys(self) -> None:
        self.key_map = KeyMap(self.settings.key_map)
        self.set_keymap(self.key_map.changed)

    def _fatal_error(self) -> None:
        """An unexpected error: its traceback goes to the log, a sentence to the screen."""
        message = log_crash(self._exception) if self._exception is not None else "moe-chat met an unexpected error."
        self._exit_renderables.append(Text(message))
        self._close_messages_no_wait()
