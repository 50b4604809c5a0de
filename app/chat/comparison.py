"""Two answers to the same question, one under EXACT and one under APPROX: which, and where their texts part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from app.storage.records import TurnRecord
from engine.config import APPROX, EXACT
from engine.events import LABEL_APPROX, LABEL_EXACT

MODE, SAMPLING = "mode", "sampling"
"""Keys of what an answer was asked with."""
ASKED = "asked"
"""Key of that in the record of an answer."""


class Parting(NamedTuple):
    """Where two texts differ first."""

    at: int
    """Characters that both begin with, cut at the last whole word."""
    word: int
    """The number of the first word that differs, from 1."""
    line: int
    """The number of its line, from 1."""


def parting(one: str, other: str) -> Parting | None:
    """Where two texts differ first; None: they are the same."""
    if one == other:
        return None
    length = min(len(one), len(other))
    at = next((place for place in range(length) if one[place] != other[place]), length)
    while at > 0 and not one[at - 1].isspace():
        at -= 1
    shared = one[:at]
    return Parting(at, len(shared.split()) + 1, shared.count("\n") + 1)


def mode_of(answer: TurnRecord) -> str | None:
    """The mode that all of an answer was written in; None: it changed meanwhile, or is not known."""
    stats: Mapping[str, Any] = answer.stats or {}
    if _has_changed(answer) or stats.get("before") is not None:
        return None
    asked = stats.get(ASKED)
    if isinstance(asked, dict) and asked.get(MODE) in (EXACT, APPROX):
        return str(asked[MODE])
    if answer.stats is None:  # it is being written: its label is its mode until it has ended
        return answer.mode_label if answer.mode_label in (EXACT, APPROX) else None
    return APPROX if answer.mode_label == LABEL_APPROX else EXACT if answer.mode_label == LABEL_EXACT else None


def other_mode(answer: TurnRecord) -> str:
    """The mode of the answer to compare with: APPROX for one that is exact, EXACT for any other."""
    return APPROX if mode_of(answer) == EXACT and answer.mode_label == LABEL_EXACT else EXACT


def counterpart(answer: TurnRecord, versions: Iterable[TurnRecord]) -> TurnRecord | None:
    """Of the other versions of an answer the newest that was written in the mode to compare with."""
    wanted = other_mode(answer)
    fitting = [
        other
        for other in versions
        if other.turn_id != answer.turn_id
        and other.stats is not None
        and other.text.strip()
        and mode_of(other) == wanted
        and (wanted != EXACT or other.mode_label == LABEL_EXACT)
    ]
    return max(fitting, key=lambda other: other.created_at, default=None)


def remarks(one: TurnRecord, other: TurnRecord) -> list[str]:
    """What is to be known when two answers are compared, besides their labels."""
    first, second = one.stats or {}, other.stats or {}
    said = []
    if one.text != other.text and not _is_comparable(first, second):
        said.append(
            "Tokens may have been drawn at random: only with temperature 0, or with one seed, the mode alone makes the"
            " difference."
        )
    models = [str(stats.get("model", "")) for stats in (first, second)]
    runs = [str(stats.get("runs_on", "")) for stats in (first, second)]
    if all(models) and models[0] != models[1]:
        said.append(f"They are by two models: {models[0]} and {models[1]}.")
    elif all(runs) and runs[0] != runs[1]:
        said.append(f"They were computed in two ways: {runs[0]} and {runs[1]}.")
    return said


def speed_ratio(exact: TurnRecord, approximate: TurnRecord) -> float | None:
    """The time per token under APPROX over that under EXACT; None: one of them is not known."""
    times = [(answer.stats or {}).get("tpot_ms") for answer in (exact, approximate)]
    known = [time for time in times if isinstance(time, int | float) and time > 0]
    return known[1] / known[0] if len(known) == 2 else None


def _has_changed(answer: TurnRecord) -> bool:
    return any("→" in marker for marker in answer.markers)


def _is_comparable(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Both were drawn in the same way, and not by chance."""
    ways = [_sampling(first), _sampling(second)]
    if any(way is None for way in ways) or ways[0] != ways[1]:
        return False
    assert ways[0] is not None
    return ways[0].get("temperature") == 0 or ways[0].get("seed") is not None


def _sampling(stats: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = stats.get(ASKED)
    sampling = asked.get(SAMPLING) if isinstance(asked, dict) else None
    return sampling if isinstance(sampling, dict) else None
