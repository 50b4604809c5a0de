"""What is to be read can be read, on every background that it is drawn on."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import Theme

from app.ui.themes import load_themes

_LEAST = 4.0
"""Of 21; the names of what is merely drawn, such as rules, are not in the table."""


def _luminance(colour: Color) -> float:
    """Relative luminance (WCAG 2, 1.4.3)."""
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted(_luminance(Color.parse(name)) for name in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", load_themes(), ids=lambda theme: theme.name)
def test_words_stand_out_from_every_background(theme: Theme) -> None:
    cursor = theme.variables["block-cursor-background"]
    backgrounds = [str(theme.background), str(theme.surface), str(theme.panel), cursor]
    for words in (str(theme.foreground), theme.variables["quiet"], theme.primary):
        for background in backgrounds:
            assert _contrast(words, background) >= _LEAST, (words, background)
