"""What is typed behind `/preset`: a name to choose, or one of the verbs, as the app and the plain chat carry it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.settings.presets import DELETE, NONE, RENAME, RESTORE, SAVE, Preset, PresetError, Presets

HOW_TO = f"/preset NAME chooses one; /preset {SAVE} NAME keeps what this chat goes on with."
_WORDS = {SAVE: 1, DELETE: 1, RESTORE: 1, RENAME: 2}
"""How many names follow each verb."""


class Outcome(NamedTuple):
    """What came of it, for a person, and what the chat is to go on with."""

    said: str
    chosen: Preset | None = None
    drops: bool = False
    """The chat is to have no preset any more."""


def carry_out(presets: Presets, asked: str, current: Callable[[str], Preset]) -> Outcome:
    """Do what was typed. `current` makes a preset of that name from what the chat has now. Raises PresetError."""
    verb, *names = asked.split()
    if verb not in _WORDS:
        if names:
            raise PresetError(f"Nothing can follow the name {verb}.", HOW_TO)
        if verb == NONE:
            return Outcome("This chat has no preset now.", drops=True)
        preset = presets.load(verb)
        return Outcome(f"Preset {verb}, from the next question on: {preset.about}", preset)
    if len(names) != _WORDS[verb]:
        raise PresetError(f"Write /preset {verb} {' '.join(['NAME', 'NEW'][: _WORDS[verb]])}.", "")
    name = names[0]
    if verb == SAVE:
        preset = current(name)
        path = presets.save(preset)
        return Outcome(f"Saved preset {name} to {path}; this chat has it: {preset.about}", preset)
    if verb == RENAME:
        presets.rename(name, names[1])
        return Outcome(f"Preset {name} renamed to {names[1]}.")
    if verb == DELETE:
        presets.delete(name)
        return Outcome(f"Deleted preset {name}; /preset {RESTORE} {name} restores it.")
    presets.restore(name)
    return Outcome(f"Restored preset {name}.")


def choices(presets: Presets) -> tuple[tuple[str, str], ...]:
    """What can follow `/preset`, with its meaning."""
    try:
        known = described(presets)
    except PresetError:
        known = ()
    names = [name for name, _ in known]
    verbs = [
        (NONE, "no preset"),
        (f"{SAVE} ", "keep the system prompt and sampling of this chat under a name"),
        *((f"{RENAME} {name} ", "rename it") for name in names),
        *((f"{DELETE} {name}", f"/preset {RESTORE} restores it") for name in names),
    ]
    return (*known, *verbs)


def described(presets: Presets) -> tuple[tuple[str, str], ...]:
    """Every preset by name with what is in it, or why it cannot be used. Raises PresetError."""
    return tuple((name, _about(presets, name)) for name in presets.names())


def _about(presets: Presets, name: str) -> str:
    try:
        return presets.load(name).about
    except PresetError as error:
        return error.message
