"""Presets of the user's own: a system prompt, how the next token is drawn, how the model thinks, and the mode.

Each is a TOML file in the data folder, named as the preset, with the tables and names of the settings file. A file that
cannot be used is left as it is; what is deleted can be restored until another preset of that name is deleted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.settings.file import SettingsFile, TomlError
from app.settings.file_places import key_lines
from app.settings.schema import SAMPLING_SETTINGS, setting_named
from app.settings.setting import Value
from app.storage.paths import private_folder
from app.storage.records import KeptPreset
from app.storage.system_errors import advice, reason
from engine.errors import ConfigError, MoeChatError

SYSTEM_PROMPT, THINKING, MODE = "chat.system_prompt", "chat.thinking", "offload.mode"
KEYS = (SYSTEM_PROMPT, THINKING, MODE, *(setting.key for setting in SAMPLING_SETTINGS))
"""The settings that a preset can hold."""

NONE = "none"
"""In place of a name: no preset."""
SAVE, RENAME, DELETE, RESTORE = "save", "rename", "delete", "restore"
VERBS = (SAVE, RENAME, DELETE, RESTORE)

_NAME = re.compile(r"[^\W_][\w.+-]{0,39}")
_HEAD = "A preset of moe-chat. What is not set here is as in the settings."
_FILE, _DELETED = ".toml", ".deleted"
_MEND = "Mend the file; it is left as it is."


class PresetError(MoeChatError):
    """A preset cannot be found, read or written."""

    title = "Preset"


@dataclass(frozen=True, slots=True)
class Preset:
    """A name, and values by the key of their setting."""

    name: str
    values: Mapping[str, Value]

    @property
    def kept(self) -> KeptPreset:
        """As it is kept with a chat."""
        return KeptPreset(self.name, dict(self.values))

    @property
    def about(self) -> str:
        """What is in it, in a line."""
        return about(self.values)


class Presets:
    """The presets in a folder, which need not exist. Every method may raise a PresetError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """The names of all files of presets, usable or not, in order."""
        try:
            found = [path.stem for path in self.folder.iterdir() if path.suffix == _FILE]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(self.folder, error) from error
        return sorted(name for name in found if _NAME.fullmatch(name))

    def load(self, name: str) -> Preset:
        """The preset of that name."""
        file = SettingsFile(self._path(name))
        try:
            tables, text = file.parse()
        except FileNotFoundError:
            raise PresetError(f"There is no preset {name!r}.", self._advice(name)) from None
        except OSError as error:
            raise self._unreadable(file.path, error) from error
        except TomlError as error:
            raise PresetError(error.message, _MEND) from error
        lines = key_lines(text)
        values = {}
        for key, value in _flat(tables):
            try:
                values[key] = _checked(key, value)
            except ConfigError as error:
                raise PresetError(f"{file.place(lines.get(key))}: {error.message}", f"{error.hint} {_MEND}") from error
        return Preset(name, values)

    def load_chosen(self, name: str) -> Preset | None:
        """The preset that a setting or an option names; None where it names none."""
        return None if name in ("", NONE) else self.load(name)

    def save(self, preset: Preset) -> Path:
        """Write a new preset. One that is there is not written over."""
        path = self._path(preset.name)
        if path.exists():
            hint = f"Choose another name, or delete it first: /preset {DELETE} {preset.name}"
            raise PresetError(f"There is a preset {preset.name!r} already.", hint)
        changes = {tuple(key.split(".", 1)): value for key, value in preset.values.items()}
        try:
            private_folder(self.folder)
            SettingsFile(path, _HEAD).write({(table, name): value for (table, name), value in changes.items()})
        except OSError as error:
            raise PresetError(f"{path} cannot be written: {reason(error)}.", advice(error)) from error
        return path

    def rename(self, name: str, new: str) -> None:
        """Call a preset something else. Chats keep the name under which they chose it."""
        self._move(self._path(name), self._path(new), name, new)

    def delete(self, name: str) -> None:
        """Delete a preset; `restore` restores it."""
        self._path(name).with_suffix(_DELETED).unlink(missing_ok=True)
        self._move(self._path(name), self._path(name).with_suffix(_DELETED), name, name)

    def restore(self, name: str) -> None:
        """Bring back the preset that was deleted under that name last."""
        self._move(self._path(name).with_suffix(_DELETED), self._path(name), name, name)

    def _move(self, old: Path, new: Path, name: str, new_name: str) -> None:
        if not old.exists():
            raise PresetError(
                f"There is no {'deleted ' * (old.suffix == _DELETED)}preset {name!r}.", self._advice(name)
            )
        if new.exists():
            raise PresetError(f"There is a preset {new_name!r} already.", "Choose another name, or delete it first.")
        try:
            old.rename(new)
        except OSError as error:
            raise PresetError(f"{old} cannot be renamed: {reason(error)}.", advice(error)) from error

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or name in (*VERBS, NONE):
            raise PresetError(
                f"{name[:40]!r} cannot be the name of a preset.",
                f"Letters, digits, and . + - _ within; at most 40; not {', '.join((*VERBS, NONE))}.",
            )
        return self.folder / f"{name}{_FILE}"

    def _advice(self, name: str) -> str:
        known = self.names()
        near = difflib.get_close_matches(name, known, 1, 0.5)
        if near:
            return f"Did you mean {near[0]}?"
        return f"There are: {', '.join(known)}." if known else f"There is none yet; /preset {SAVE} NAME keeps one."

    def _unreadable(self, path: Path, error: OSError) -> PresetError:
        return PresetError(f"{path} cannot be read: {reason(error)}.", advice(error))


def of_chat(name: str, value: Callable[[str], Value | None], system_prompt: str, chosen: Mapping[str, Value]) -> Preset:
    """A preset from what a chat goes on with: its system prompt, its preset's values, and what else is set of sampling
    and thinking. `value` gives a setting's value by key."""
    held = {key: value(key) for key in KEYS if key not in (SYSTEM_PROMPT, MODE)}
    values = {key: one for key, one in held.items() if one is not None} | dict(chosen)
    values.pop(SYSTEM_PROMPT, None)
    return Preset(name, values | ({SYSTEM_PROMPT: system_prompt} if system_prompt else {}))


def usable(kept: KeptPreset | None) -> dict[str, Value]:
    """The values of a chat's preset that a setting can have; a file of chats may hold others."""
    values: dict[str, Value] = {}
    for key, value in (kept.values if kept is not None else {}).items():
        try:
            values[key] = _checked(key, value)
        except ConfigError:
            continue
    return values


def about(values: Mapping[str, Value]) -> str:
    """Values in a line: `temperature 0.2 · approx · “Answer briefly.”`."""
    parts = []
    for key in sorted(values, key=KEYS.index, reverse=True):
        setting = setting_named(key)
        text = " ".join(setting.text(values[key]).split()) if setting is not None else ""
        if key == SYSTEM_PROMPT:
            parts.append(f"“{text}”")
        else:
            parts.append(text if key == MODE else f"{key.partition('.')[2].replace('_', ' ')} {text}")
    return " · ".join(parts) or "everything as in the settings"


def _flat(tables: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for table, values in tables.items():
        if isinstance(values, dict):
            yield from ((f"{table}.{name}", value) for name, value in values.items())
        else:
            yield table, values


def _checked(key: str, value: object) -> Value:
    """A value of a preset. Raises ConfigError that names what is meant."""
    setting = setting_named(key)
    if setting is None or key not in KEYS:
        near = difflib.get_close_matches(key.rpartition(".")[2], [known.rpartition(".")[2] for known in KEYS], 1, 0.6)
        meant = next((known for known in KEYS if near and known.endswith(f".{near[0]}")), "")
        hint = f"Did you mean {meant}?" if meant and meant != key else f"It can hold {', '.join(KEYS)}."
        raise ConfigError(f"{key} cannot be in a preset.", hint)
    try:
        return setting.checked(value)
    except ConfigError as error:
        raise ConfigError(f"{key} = {error.message}", "") from None
