"""The app's own themes, read from `assets.themes`."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from textual.theme import Theme

from app.settings.schema import THEME_CONTRAST, THEME_DARK, THEME_LIGHT, THEME_SYSTEM

DARK, LIGHT, CONTRAST = "verdigris", "verdigris-light", "verdigris-contrast"

_BY_SETTING = {THEME_DARK: DARK, THEME_LIGHT: LIGHT, THEME_CONTRAST: CONTRAST}


def load_themes() -> list[Theme]:
    """The dark, the light and the high-contrast theme."""
    themes = []
    for name in (DARK, LIGHT, CONTRAST):
        values = tomllib.loads((files("assets.themes") / f"{name}.toml").read_text(encoding="utf-8"))
        values.pop("title")
        themes.append(Theme(name=name, **values))
    return themes


def theme_for(setting: str, *, is_light_terminal: bool) -> str:
    """The theme that a setting means; `system` follows the terminal's background."""
    if setting == THEME_SYSTEM:
        return LIGHT if is_light_terminal else DARK
    return _BY_SETTING.get(setting, DARK)


def other_mode(theme: str) -> str:
    """The setting for light where a theme is dark, and the other way round."""
    return THEME_DARK if theme == LIGHT else THEME_LIGHT
