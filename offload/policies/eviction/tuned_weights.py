"""Weights of history eviction tuned for a model, with the loads measured for them: a JSON file.

    {"format": "moe-chat eviction weights", "version": 1,
     "model": the model's fingerprint, "created_s": seconds since 1970,
     "weights": {"count", "ema", "score", "recency", "window_steps", "ema_decay"},
     "slots_per_layer": [...],
     "tuned_on": {"prompts", "default_loads", "loads"},
     "held_out": {"prompts", "default_loads", "loads"}}

`weights` are the fields of HistoryWeights. Loads are those of replays from empty slots; `held_out` counts prompts that
the search has not seen.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from offload.atomic_file import replaced
from offload.bounded_json import Limits, NotReadable, parse_json, shown, told
from offload.errors import WeightsError
from offload.policies.eviction.history import HistoryWeights
from offload.regular_file import read_whole, why

_FORMAT: Final = "moe-chat eviction weights"
_VERSION: Final = 1
_LIMITS: Final = Limits(max_bytes=1 << 20, max_depth=8)
_REMEDY: Final = "Tune again: moe-chat tune --keep. Or go back to the defaults: moe-chat tune --reset"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measured loads over some prompts."""

    prompts: int
    default_loads: int
    """With the default weights."""
    loads: int
    """With the tuned ones."""

    @property
    def saved_rate(self) -> float:
        """Share of the default weights' loads that the tuned ones save; negative when they load more."""
        return 1 - self.loads / self.default_loads if self.default_loads else 0.0


@dataclass(frozen=True, slots=True)
class TunedWeights:
    """The result of a tuning, as it is stored."""

    model: str
    """Fingerprint of the model."""
    created_s: float
    weights: HistoryWeights
    slots_per_layer: tuple[int, ...]
    tuned_on: Evidence
    held_out: Evidence

    def save(self, path: Path) -> None:
        """Write the file, atomically. Raises OSError."""
        text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(self)}, indent=2)
        with replaced(path) as file:
            file.write(f"{text}\n".encode())


def load_tuned_weights(path: Path, models: Collection[str]) -> TunedWeights:
    """Read a file of weights tuned for a model with one of these fingerprints.

    Raises WeightsError, saying what to do, when it is missing, damaged, something else, or another model's.
    """
    try:
        found = parse_json(read_whole(path, _LIMITS.max_bytes), _LIMITS)
    except OSError as failure:
        raise WeightsError(f"{path} cannot be read: {why(failure)}.", _REMEDY) from failure
    except NotReadable as failure:
        raise WeightsError(f"{path} is damaged: {told(failure)}.", _REMEDY) from failure
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise WeightsError(f"{path} holds no {_FORMAT}.", _REMEDY)
    if found.get("version") != _VERSION:
        known = f"and this program knows version {_VERSION}"
        raise WeightsError(f"{path} is of version {shown(found.get('version'))}, {known}.", _REMEDY)
    try:
        tuned = _tuned_from(found)
    except KeyError as failure:
        raise WeightsError(f"{path} is damaged: it lacks {told(failure)}.", _REMEDY) from failure
    except (AttributeError, TypeError, ValueError) as failure:
        raise WeightsError(f"{path} is damaged: {told(failure)}.", _REMEDY) from failure
    if tuned.model not in models:
        raise WeightsError(f"The weights in {path} were tuned for another model.", _REMEDY)
    return tuned


def _tuned_from(found: Mapping[str, Any]) -> TunedWeights:
    """Raises KeyError, TypeError or ValueError for what is no such file."""
    numbers = {name: _number(value, name) for name, value in found["weights"].items()}
    window_steps = _whole(numbers.pop("window_steps"), "window_steps")
    return TunedWeights(
        model=_text(found["model"], "model"),
        created_s=_number(found["created_s"], "created_s"),
        weights=HistoryWeights(**numbers, window_steps=window_steps),
        slots_per_layer=tuple(_whole(slots, "slots_per_layer") for slots in found["slots_per_layer"]),
        tuned_on=Evidence(**{name: _whole(value, name) for name, value in found["tuned_on"].items()}),
        held_out=Evidence(**{name: _whole(value, name) for name, value in found["held_out"].items()}),
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}")
    return value


def _number(value: Any, name: str) -> float:
    """A finite number; JSON as Python reads it knows others, and takes true for 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise ValueError(f"{name} is {shown(value)}")
    return value


def _whole(value: Any, name: str) -> int:
    number = _number(value, name)
    if number != int(number) or number < 0:
        raise ValueError(f"{name} is {shown(value)}")
    return int(number)
