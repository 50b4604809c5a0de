"""The settings in force: defaults, overlaid by the file, by the environment (`MOE_CHAT_*`) and by the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from app.settings.file import SettingsFile
from app.settings.file_places import nearest_key
from app.settings.schema import ENGINE_SETTINGS, KEYS_TABLE, SAMPLING_SETTINGS, SETTINGS, setting_named
from app.settings.setting import Setting, Value
from app.storage.paths import AppPaths
from engine.config import DEMO_MODEL, EngineConfig, SamplingConfig
from engine.errors import ConfigError

DEMO_RESIDENCY = 0.5
"""The demo fits into memory; half of its experts are kept out so that offloading really happens."""

_WELCOME_ASKS = ("model.name", "model.memory", "model.residency")
_EXCLUSIVE = {"model.memory": "model.residency", "model.residency": "model.memory"}


class Given(NamedTuple):
    """A value given for this run only, and by what: `--memory`, or `MOE_CHAT_MEMORY`."""

    typed: str | list[str]
    """As it was typed; a list where the option was repeated."""
    by: str

    @property
    def text(self) -> str:
        """It as one text, for a person."""
        return self.typed if isinstance(self.typed, str) else ", ".join(self.typed)

    def read(self, setting: Setting) -> Value | None:
        """The value. Raises ConfigError that names what gave it."""
        try:
            return setting.parse(self.typed) if isinstance(self.typed, str) else setting.checked(self.typed)
        except ConfigError as error:
            raise ConfigError(f"{self.by}: {error.message}", error.hint) from None


class Settings:
    """What the user has set. `problems` says what of the file could not be used; it stays there all the same."""

    def __init__(self, file: SettingsFile, given: Mapping[str, Given] | None = None) -> None:
        """`given` holds values by setting key."""
        self.file = file
        self._given = dict(given or {})
        self.is_first_run = not file.exists and self._given.keys().isdisjoint(_WELCOME_ASKS)
        """The app asks for the model and the memory, unless this run's command line or environment says."""
        self._stored: dict[str, Value] = {}
        tables, problems, self._lines = file.read()
        self.problems: list[str] = list(problems)
        self.key_map: dict[str, str] = {}
        self._take(tables)

    @classmethod
    def of(cls, arguments: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
        """The user's settings under a command line and an environment. Raises ConfigError for a wrong value of them."""
        variables = os.environ if environment is None else environment
        given = {
            setting.key: Given(text, setting.variable)
            for setting in SETTINGS
            if (text := variables.get(setting.variable))
        }
        typed = {key: value for key, value in vars(arguments).items() if setting_named(key) is not None}
        for key, value in typed.items():
            given[key] = Given(value, _setting(key).flag)
            if (other := _EXCLUSIVE.get(key)) and other not in typed:
                given.pop(other, None)
        for key, one in given.items():
            one.read(_setting(key))
        return cls(SettingsFile(AppPaths.from_environment(variables).settings_file), given)

    def given(self, key: str) -> Given | None:
        """What wins over the file in this run."""
        return self._given.get(key)

    def typed(self, key: str) -> str | None:
        """What the command line itself gives; None: nothing."""
        given = self._given.get(key)
        return given.text if given is not None and given.by == _setting(key).flag else None

    def stored(self, key: str) -> Value | None:
        """What the file says; None: nothing."""
        return self._stored.get(key)

    def value(self, key: str) -> Value | None:
        """What holds, as TOML holds it."""
        setting = _setting(key)
        if (given := self._given.get(key)) is not None:
            return given.read(setting)
        return self._stored.get(key, setting.default)

    def text(self, key: str) -> str:
        """A value that is a text, or nothing."""
        value = self.value(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float:
        """A value that is a number; 0 where there is none."""
        value = self.value(key)
        return value if isinstance(value, int | float) else 0

    def is_changed(self, key: str) -> bool:
        """The file says something else than the default."""
        return key in self._stored and self._stored[key] != _setting(key).default

    def engine_changes(self) -> dict[str, str]:
        """What of the engine's configuration is not the default, by key, and by what it was set."""
        changes: dict[str, str] = {}
        for setting in ENGINE_SETTINGS:
            given, value = self._given.get(setting.key), self._in_force(setting)
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
        values = self._for_engine(ENGINE_SETTINGS)
        if values["model"] == DEMO_MODEL and values.keys().isdisjoint(("memory_bytes", "residency")):
            values["residency"] = DEMO_RESIDENCY
        return EngineConfig(**values)

    def config_of_others(self) -> EngineConfig:
        """The engine's configuration for models beside the one that is set: what the demo alone takes is left out.
        Raises nothing: settings that contradict each other are those of nobody."""
        try:
            return EngineConfig(**{**self._for_engine(ENGINE_SETTINGS), "model": ""})
        except ConfigError:
            return EngineConfig()

    def model_folders(self) -> list[Path]:
        """The user's own folders of models."""
        folders = self.value("model.folders")
        return [Path(folder).expanduser() for folder in folders] if isinstance(folders, list) else []

    def sampling(self, preset: Mapping[str, Value] | None = None) -> SamplingConfig:
        """How to sample; what is not set is the model's own default. Values of a `preset`, by key, win over all but the
        command line. Raises ConfigError."""
        chosen = {
            setting.field: setting.for_engine(value)
            for setting in SAMPLING_SETTINGS
            if self.typed(setting.key) is None and (value := (preset or {}).get(setting.key)) is not None
        }
        return SamplingConfig(**{**self._for_engine(SAMPLING_SETTINGS), **chosen})

    def _for_engine(self, settings: Iterable[Setting]) -> dict[str, Any]:
        """What is set of these, by the field of the engine's configuration."""
        in_force = ((setting, self._in_force(setting)) for setting in settings)
        return {setting.field: setting.for_engine(value) for setting, value in in_force if value is not None}

    def _in_force(self, setting: Setting) -> Value | None:
        """Its value; None where the one that excludes it was given for this run."""
        is_excluded = setting.key not in self._given and _EXCLUSIVE.get(setting.key) in self._given
        return None if is_excluded else self.value(setting.key)

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
            self.problems.append(f"{self._place(key)}: {key} = {error.message} The default holds.")

    def _place(self, key: str) -> str:
        return self.file.place(self._lines.get(key))


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
