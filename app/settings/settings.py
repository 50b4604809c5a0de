"""The settings in force: defaults, overlaid by the file, by the environment (`MOE_CHAT_*`) and by the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from app.settings import options
from app.settings.file import SettingsFile
from app.settings.file_places import nearest_key
from app.settings.schema import KEYS_TABLE, SETTINGS, setting_named
from app.settings.setting import Setting, Value
from app.storage.paths import AppPaths
from engine.config import EngineConfig, SamplingConfig
from engine.errors import ConfigError

_EXCLUSIVE = {"model.memory": "model.residency", "model.residency": "model.memory"}
_ENVIRONMENT = "MOE_CHAT_"


class Given(NamedTuple):
    """A value given for this run only, and by what: `--memory`, or `MOE_CHAT_MEMORY`."""

    text: str
    by: str


class Settings:
    """What the user has set. `problems` says what of the file could not be used; it stays there all the same."""

    def __init__(
        self, file: SettingsFile, given: Mapping[str, Given] | None = None, stop: tuple[str, ...] = ()
    ) -> None:
        """`given` holds values by setting key."""
        self.file = file
        self.is_first_run = not file.exists
        self._given = dict(given or {})
        self._stop = stop
        self._stored: dict[str, Value] = {}
        tables, problems, self._lines = file.read()
        self.problems: list[str] = list(problems)
        self.key_map: dict[str, str] = {}
        self._take(tables)

    @classmethod
    def of(cls, arguments: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
        """The user's settings under a command line. Raises ConfigError for a variable with a wrong value."""
        variables = os.environ if environment is None else environment
        given = _of_environment(variables)
        for setting in SETTINGS:
            if setting.option and (text := getattr(arguments, setting.option, None)) is not None:
                given[setting.key] = Given(text, setting.flag)
                if (other := _EXCLUSIVE.get(setting.key)) and getattr(arguments, _setting(other).option, None) is None:
                    given.pop(other, None)
        file = SettingsFile(AppPaths.from_environment(variables).settings_file)
        return cls(file, given, tuple(getattr(arguments, "stop", ())))

    def given(self, key: str) -> Given | None:
        """What wins over the file in this run."""
        return self._given.get(key)

    def stored(self, key: str) -> Value | None:
        """What the file says; None: nothing."""
        return self._stored.get(key)

    def value(self, key: str) -> Value | None:
        """What holds, as TOML holds it. Raises ConfigError where the command line gives nonsense."""
        setting = _setting(key)
        if (given := self._given.get(key)) is not None:
            return setting.parse(given.text)
        return self._stored.get(key, setting.default)

    def text(self, key: str) -> str:
        """A value that is a text, or nothing."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def is_changed(self, key: str) -> bool:
        """The file says something else than the default."""
        return key in self._stored and self._stored[key] != _setting(key).default

    def engine_changes(self) -> dict[str, str]:
        """What of the engine's configuration is not the default, by key, and by what it was set."""
        changes: dict[str, str] = {}
        for setting in SETTINGS:
            given, other = self._given.get(setting.key), _EXCLUSIVE.get(setting.key, "")
            if not setting.is_engine or (given is None and other in self._given):
                continue
            value = self.value(setting.key)
            if value is not None and value != setting.default:
                changes[setting.key] = f"{setting.text(value)} ({given.by if given else self.file.path.name})"
        return changes

    def change(self, changes: Mapping[str, Value | None]) -> None:
        """Set values, and save them; None goes back to the default. Raises ConfigError and OSError, changing nothing.

        Memory and residency are told instead of each other: setting one takes the other out.
        """
        checked = {key: None if value is None else _setting(key).checked(value) for key, value in changes.items()}
        for key in changes:
            if checked[key] is not None and (other := _EXCLUSIVE.get(key)) and checked.get(other) is None:
                checked[other] = None
        self.file.write({(_setting(key).table, _setting(key).name): value for key, value in checked.items()})
        self.hold(checked)

    def hold(self, changes: Mapping[str, Value | None]) -> None:
        """Take values for this run without saving them. Raises ConfigError."""
        for key, value in changes.items():
            if value is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = _setting(key).checked(value)
                self._stored.pop(_EXCLUSIVE.get(key, ""), None)

    def overrule(self, keys: Iterable[str]) -> None:
        """What the command line gives for these holds no longer: the user chose otherwise in the app."""
        for key in keys:
            self._given.pop(key, None)
            self._given.pop(_EXCLUSIVE.get(key, ""), None)

    def change_keys(self, action_id: str, keys: str | None) -> None:
        """Give an action a key of the user's own, or None: its default. Raises OSError, changing nothing."""
        self.file.write({(KEYS_TABLE, action_id): keys})
        if keys is None:
            self.key_map.pop(action_id, None)
        else:
            self.key_map[action_id] = keys

    def engine_config(self) -> EngineConfig:
        """The engine's configuration. Raises ConfigError."""
        return options.engine_config(self._arguments())

    def sampling(self) -> SamplingConfig:
        """How to sample. Raises ConfigError."""
        return options.sampling_config(self._arguments())

    def _arguments(self) -> argparse.Namespace:
        """The command line that says everything that is set."""
        told = argparse.Namespace(stop=self._stop) if self._stop else argparse.Namespace()
        for setting in SETTINGS:
            given, other = self._given.get(setting.key), _EXCLUSIVE.get(setting.key, "")
            if given is not None and setting.option:
                setattr(told, setting.option, given.text)
            elif setting.option and setting.key in self._stored and other not in self._given:
                setattr(told, setting.option, setting.text(self._stored[setting.key]))
        return told

    def _take(self, tables: Mapping[str, Mapping[str, object]]) -> None:
        for table, values in tables.items():
            for name, value in values.items():
                if table == KEYS_TABLE:
                    self.key_map[name] = value if isinstance(value, str) else ""
                else:
                    self._take_one(f"{table}.{name}", value)
        if _EXCLUSIVE.keys() <= self._stored.keys():
            self.problems.append("The settings have both model.memory and model.residency; the memory holds.")
            del self._stored["model.residency"]

    def _take_one(self, key: str, value: object) -> None:
        setting = setting_named(key)
        if setting is None:
            near = nearest_key(key)
            hint = f" Did you mean {near}?" if near else ""
            self.problems.append(f"{self._place(key)}: {key} is not known; it is left as it is.{hint}")
            return
        try:
            self._stored[key] = setting.checked(value)
        except ConfigError as error:
            self.problems.append(f"{self._place(key)}: {error.message} {error.hint} The default holds.")

    def _place(self, key: str) -> str:
        return self.file.place(self._lines.get(key))


def _of_environment(variables: Mapping[str, str]) -> dict[str, Given]:
    """What variables give. The values of options are checked with those of the command line."""
    given: dict[str, Given] = {}
    for setting in SETTINGS:
        variable = _ENVIRONMENT + (setting.option or setting.name).upper()
        if text := variables.get(variable):
            given[setting.key] = Given(text, variable)
            if not setting.option:
                _check(setting, text, variable)
    return given


def _check(setting: Setting, text: str, variable: str) -> None:
    try:
        setting.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{variable}: {error.message}", error.hint) from None


def search(settings: Iterable[Setting], wanted: str) -> list[Setting]:
    """The settings whose key, words or range hold every word of `wanted`."""
    words = wanted.lower().split()
    return [
        setting
        for setting in settings
        if all(
            word in f"{setting.key} {setting.title} {setting.meaning} {setting.group} {setting.range_text}".lower()
            for word in words
        )
    ]


def _setting(key: str) -> Setting:
    setting = setting_named(key)
    assert setting is not None, key
    return setting
