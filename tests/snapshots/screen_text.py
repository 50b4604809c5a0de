"""A screen as a text to keep: its rows as they are read, then how they look.

Below the rows stand runs of styles, a letter and how many cells have that style (`a74b1` is 74 cells of `a`, then one
of `b`), equal rows together, and last what the letters mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from string import ascii_letters

from rich.segment import Segment
from rich.style import Style
from textual.screen import Screen
from textual.strip import Strip

_LETTERS = ascii_letters + "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse", "strike")


def screen_text(screen: Screen[object]) -> str:
    """What is on the screen now."""
    strips = screen._compositor.render_strips()
    letters: dict[str, str] = {}
    runs = [_runs(strip, letters) for strip in strips]
    looks = [f"{_numbers(list(rows))} {run}" for run, rows in groupby(range(len(runs)), key=runs.__getitem__)]
    legend = [f"{letter} {style}" for style, letter in letters.items()]
    return "\n".join((*(strip.text.rstrip() for strip in strips), "", *looks, "", *legend, ""))


def _numbers(rows: Sequence[int]) -> str:
    return str(rows[0]) if len(rows) == 1 else f"{rows[0]}-{rows[-1]}"


def _runs(strip: Strip, letters: dict[str, str]) -> str:
    cells = [(_described(segment), segment.cell_length) for segment in strip]
    runs = []
    for style, run in groupby(cells, key=lambda cell: cell[0]):
        letter = letters.setdefault(style, _LETTERS[len(letters)])
        runs.append(f"{letter}{sum(width for _, width in run)}")
    return "".join(runs)


def _described(segment: Segment) -> str:
    """`bold #5fb8a5 on #11151a`; the colour of a blank is none."""
    style = segment.style or Style.null()
    attributes = [name for name in _ATTRIBUTES if getattr(style, name)]
    foreground = style.color if segment.text.strip() or style.reverse else None
    colours = [colour.name if colour is not None else "default" for colour in (foreground, style.bgcolor)]
    return " ".join((*attributes, " on ".join(colours)))
