"""How each layer's experts are predicted: by the router's short form, by the router itself, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Way(Enum):
    """How a layer's experts are predicted."""

    SHORT = "short form"
    ASKED = "router itself"
    """Slower, without correction of the mean error."""
    NONE = "not at all"


class PredictionForm(NamedTuple):
    """Of one layer."""

    way: Way
    near_tie_rate: float = 0.0
    """With the short form: share of random inputs on which rounding decides otherwise than in the router."""
    reason: str = ""
    """Why not the short form."""


def describe_forms(forms: Sequence[PredictionForm]) -> str:
    """For a person, in one line: `forms` of the layers that one would predict."""
    if not forms:
        return "no layer to predict"
    counts = Counter(form.way for form in forms)
    said = [f"{len(forms) - counts[Way.NONE]} of {len(forms)} layers predictable"]
    short = [form.near_tie_rate for form in forms if form.way is Way.SHORT]
    if any(short):
        said.append(f"near-ties in {sum(short) / len(short):.1%} of choices")
    if counts[Way.ASKED]:
        said.append(f"{counts[Way.ASKED]} slowly, by the router itself ({_reasons(forms, Way.ASKED)})")
    if counts[Way.NONE]:
        said.append(f"{counts[Way.NONE]} not ({_reasons(forms, Way.NONE)})")
    return ", ".join(said)


def _reasons(forms: Sequence[PredictionForm], way: Way) -> str:
    return "; ".join(dict.fromkeys(form.reason for form in forms if form.way is way))
