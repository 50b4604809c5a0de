"""What the settings screen says of a setting: one line in the list, and all about the highlighted one."""

from __future__ import annotations

from textual.content import Content

from app.commands.table import COMMANDS, command_with_id
from app.formatting.sanitise import visible
from app.settings.schema import KEYS_TABLE, SETTINGS
from app.settings.setting import Kind, Setting
from app.settings.settings import Settings
from app.ui.key_map import KeyMap
from engine.errors import ConfigError

_NAME_WIDTH = 20
_LONG = 60
_SURELY_SHOWN = 24
"""Characters of a value that the list shows in a narrow terminal, too."""

KEYS_GROUP = "Keys"

ALL_ROWS: tuple[Setting, ...] = (
    *SETTINGS,
    *(
        Setting(
            f"{KEYS_TABLE}.{action.id}",
            action.title,
            f"{action.meaning[:1].upper()}{action.meaning[1:]}.",
            KEYS_GROUP,
            Kind.KEYS,
            action.keys or None,
            unset="" if action.keys else "none, the palette has it",
        )
        for action in COMMANDS
        if action.call
    ),
)
"""The settings, then one row for the keys of each action."""


def is_changed(row: Setting, settings: Settings, key_map: KeyMap) -> bool:
    """It is not the default that holds or is saved."""
    return row.name in key_map.changed if row.kind is Kind.KEYS else settings.is_changed(row.key)


def value_text(row: Setting, settings: Settings, key_map: KeyMap) -> str:
    """What holds now, as it would be typed; empty: nothing is set."""
    if row.kind is Kind.KEYS:
        action = command_with_id(row.name)
        return key_map.keys_text(action) if action is not None else ""
    try:
        return row.text(settings.value(row.key))
    except ConfigError:
        return row.text(settings.stored(row.key))


def saved_text(row: Setting, settings: Settings, key_map: KeyMap) -> str:
    """What would hold without the command line."""
    if settings.given(row.key) is None:
        return value_text(row, settings, key_map)
    return row.text(settings.stored(row.key)) or row.text(row.default)


def line(row: Setting, settings: Settings, key_map: KeyMap) -> Content:
    """`● Temperature         0.7`, with what the command line gives in its place said beside it."""
    text, given = visible(value_text(row, settings, key_map)).replace("\n", " ↵ "), settings.given(row.key)
    shown = text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
    has_changed = is_changed(row, settings, key_map)
    return Content.assemble(
        ("● " if has_changed else "  ", "$warning"),
        (f"{row.title:<{_NAME_WIDTH}} ", "bold" if has_changed else ""),
        (shown, "$primary") if shown else (row.unset, "$quiet"),
        (f"   by {given.by}", "$warning") if given else "",
    )


def detail(row: Setting, settings: Settings, key_map: KeyMap) -> Content:
    """Its value where the list may cut it, meaning, range and default, what wins over it, when a change acts."""
    default = row.text(row.default) or row.unset
    about = [f"{row.range_text[:1].upper()}{row.range_text[1:]}. Default: {default}."]
    if row.acts:
        about.append(row.acts)
    lines: list[str | tuple[str, str]] = [(row.meaning, ""), "\n", (" ".join(about), "$quiet")]
    value = visible(value_text(row, settings, key_map))
    if len(value) > _SURELY_SHOWN and row.kind is not Kind.LONG_TEXT:  # whose editor shows it
        lines = [(value, "$primary"), "\n", *lines]
    if given := settings.given(row.key):
        stored = row.text(settings.stored(row.key)) or default
        warning = f"{given.by} {given.text} wins in this run; the file has {stored}."
        lines += ["\n", (visible(warning), "$warning")]
    else:
        lines += ["\n", (f"{row.key} in the file", "$quiet")]
    return Content.assemble(*lines)
