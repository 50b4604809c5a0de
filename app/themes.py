"""The app's own themes, read from `assets.themes`."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from textual.theme import Theme

DARK, LIGHT = "verdigris", "verdigris-light"


def load_themes() -> list[Theme]:
    """The dark and the light theme."""
    themes = []
    for name in (DARK, LIGHT):
        values = tomllib.loads((files("assets.themes") / f"{name}.toml").read_text(encoding="utf-8"))
        values.pop("title")
        themes.append(Theme(name=name, **values))
    return themes
