"""What a model's generation_config.json says about drawing tokens and ending answers: read once, typed and bounded.

The file is whatever a model's folder brings. What transformers treats as "off" is off here; any other value that is out
of range or of another type is refused, with the file, the key and the value.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.config import SamplingConfig
from engine.errors import CheckpointError

FILE_NAME = "generation_config.json"
_MOST_FILE_BYTES = 1 << 20
_MOST_SHOWN_CHARS = 60
_MOST_END_TOKENS = 1000
_MOST_TEMPERATURE, _MOST_TOP_K, _LEAST_PENALTY, _MOST_PENALTY = 100, 10**9, 1e-3, 100
_MOST_TOP_P = 100
"""From 1 on it is off."""


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """The model's own settings. None is off; of the temperature, 1."""

    do_sample: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    end_tokens: frozenset[int] = frozenset()


def read_model_defaults(folder: Path) -> ModelDefaults:
    """Of the folder's generation_config.json; everything off without one.

    Raises CheckpointError for a file that is not an object of JSON, for a value that is out of range or of another
    type, and for what is no file; never waits for one.
    """
    path = folder / FILE_NAME
    return defaults_of(_read_object(path), str(path)) if path.exists() else ModelDefaults()


def defaults_of(values: Mapping[str, object], file: str) -> ModelDefaults:
    """The settings in a parsed generation config; unknown keys are free. `file` is for messages. Raises
    CheckpointError."""
    read = _Reader(values, file)
    top_p = read.number("top_p", 0, _MOST_TOP_P)
    top_k = read.whole("top_k", -1, _MOST_TOP_K)
    min_p = read.number("min_p", 0, 1)
    penalty = read.number("repetition_penalty", _LEAST_PENALTY, _MOST_PENALTY)
    return ModelDefaults(
        do_sample=read.truth("do_sample"),
        temperature=read.number("temperature", 0, _MOST_TEMPERATURE),
        top_p=top_p if top_p is not None and top_p < 1 else None,
        top_k=top_k if top_k is not None and top_k > 0 else None,
        min_p=min_p or None,
        repetition_penalty=penalty if penalty != 1 else None,
        end_tokens=end_token_ids(values.get("eos_token_id"), file),
    )


def with_model_defaults(asked: SamplingConfig, own: ModelDefaults) -> SamplingConfig:
    """Fills what the user left open with the model's own settings; a model that does not sample is greedy."""

    def pick(name: str) -> Any:
        value = getattr(asked, name)
        return value if value is not None else getattr(own, name)

    temperature = asked.temperature
    if temperature is None:
        temperature = (1.0 if own.temperature is None else own.temperature) if own.do_sample else 0.0
    return replace(
        asked,
        temperature=temperature,
        top_p=pick("top_p"),
        top_k=pick("top_k"),
        min_p=pick("min_p"),
        repetition_penalty=pick("repetition_penalty"),
    )


def end_token_ids(value: object, file: str) -> frozenset[int]:
    """The ids in an `eos_token_id`: None, one, a list of them, or a list of lists; a negative one is none.

    Raises CheckpointError for anything else, for text in particular, and for more than a thousand.
    """
    found: set[int] = set()
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, (list, tuple)) and depth < 2 and len(item) <= _MOST_END_TOKENS:
            waiting += [(inner, depth + 1) for inner in item]
        elif isinstance(item, int) and not isinstance(item, bool):
            found.add(item)
        elif item is not None:
            raise _wrong(file, "eos_token_id", value, "the number of a token, or a list of such numbers")
    return frozenset(token for token in found if token >= 0)


class _Reader:
    """Typed values out of parsed JSON; absent ones and nulls are None. Raises CheckpointError."""

    def __init__(self, values: Mapping[str, object], file: str) -> None:
        self._values, self._file = values, file

    def number(self, key: str, low: float, high: float) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not low <= value <= high:
            raise _wrong(self._file, key, value, f"a number between {low:g} and {high:g}")
        return float(value)

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self._values.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _wrong(self._file, key, value, f"a whole number between {low} and {high}")
        return value

    def truth(self, key: str) -> bool:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise _wrong(self._file, key, value, "true or false")
        return bool(value)


def _read_object(path: Path) -> Mapping[str, object]:
    again = "Fetch the file again."
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is not a file.", again)
        if status.st_size > _MOST_FILE_BYTES:
            raise CheckpointError(f"{path} has {status.st_size} bytes; such a file has at most a MiB.", again)
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {str(error)[:200]}", again) from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds {_shown(found)}, not an object of settings.", again)
    return found


def _wrong(file: str, key: str, value: object, wanted: str) -> CheckpointError:
    return CheckpointError(
        f"{file}: {key} is {_shown(value)}; it must be {wanted}.", "Correct it in the file, or fetch the file again."
    )


def _shown(value: object) -> str:
    """Shortened; a number of very many digits is not written out at all."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "a number of very many digits"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN_CHARS else text[: _MOST_SHOWN_CHARS - 1] + "…"
