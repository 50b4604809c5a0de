"""Charts of block characters: stacked shares over time, columns, and a bar divided into parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from textual.content import Content

_EIGHTHS = " ▁▂▃▄▅▆▇█"


class Part(NamedTuple):
    """One of the parts of a whole: how it is drawn, with colours and without."""

    name: str
    colour: str
    glyph: str


def _runs(cells: Sequence[tuple[str, str]]) -> Content:
    """(character, style) cells as one line, equal styles together."""
    return Content.assemble(
        *(("".join(cell[0] for cell in run), style) for style, run in groupby(cells, key=lambda cell: cell[1]))
    )


def _edges(values: Sequence[float], height: int) -> list[int]:
    """Where each part of a column of `height` rows ends, in eighths of a row; none that is there vanishes."""
    whole, room = sum(values), 8 * height
    sizes = [max(1, round(room * value / whole)) if value else 0 for value in values]
    sizes[sizes.index(max(sizes))] += room - sum(sizes)
    edges, at = [], 0
    for size in sizes:
        at += size
        edges.append(at)
    return edges


def _stacked_cell(edges: Sequence[int], bottom: int, parts: Sequence[Part], can_colour: bool) -> tuple[str, str]:
    """The cell whose lowest eighth is `bottom`. It can show two parts: the lowest, and the last one in it."""
    low = next(index for index, edge in enumerate(edges) if edge > bottom)
    high = next(index for index, edge in enumerate(edges) if edge >= bottom + 8)
    filled = min(8, edges[low] - bottom)
    if not can_colour:
        return parts[low if filled >= 4 else high].glyph, parts[low].colour
    if low == high:
        return "█", parts[low].colour
    return _EIGHTHS[filled], f"{parts[low].colour} on {parts[high].colour}"


def stacked(
    columns: Sequence[Sequence[float]], width: int, height: int, parts: Sequence[Part], *, can_colour: bool
) -> list[Content]:
    """The last `width` columns, each divided from the bottom up by its values, in `height` lines. Columns sum to more
    than 0."""
    edges = [_edges(values, height) for values in columns[-width:]]
    return [
        _runs([_stacked_cell(column, 8 * row, parts, can_colour) for column in edges])
        for row in reversed(range(height))
    ]


def columns(values: Sequence[float | None], width: int, height: int, top: float, colour: str) -> list[Content]:
    """The last `width` values as columns from 0 to `top`, in `height` lines; None is a gap."""
    sizes = [0 if not value else max(1, round(8 * height * min(1.0, value / top))) for value in values[-width:]]
    return [
        Content.styled("".join(_EIGHTHS[max(0, min(8, size - 8 * row))] for size in sizes), colour)
        for row in reversed(range(height))
    ]


def divided_bar(
    values: Sequence[float], whole: float, width: int, parts: Sequence[Part], *, can_colour: bool
) -> Content:
    """A bar as wide as `whole`, divided into its parts; what is left over is dotted."""
    spans: list[tuple[str, str]] = []
    edge, filled = 0.0, 0
    for value, part in zip(values, parts, strict=True):
        edge += value
        end = min(width, round(width * edge / whole)) if whole else 0
        spans.append(("█" * (end - filled) if can_colour else part.glyph * (end - filled), part.colour))
        filled = max(filled, end)
    return Content.assemble(*spans, ("·" * (width - filled), "$quiet"))


def key_of(part: Part, value: str, *, can_colour: bool) -> Content:
    """`■ name value`: what a part of a chart means."""
    return Content.assemble((f"{'■' if can_colour else part.glyph} ", part.colour), (f"{part.name} ", "$quiet"), value)
