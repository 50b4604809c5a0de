"""A GGUF file's metadata as typed values within bounds."""

from __future__ import annotations

import math
from array import array
from typing import Final

from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.gguf.values import Numbers, Strings, Value
from engine.checkpoint.json_file import REFETCH
from engine.errors import CheckpointError
from offload.bounded_json import shown

_ARCHITECTURE: Final = "{arch}"


class Metadata:
    """Of one file. `{arch}` in a key stands for the architecture's name, as in `{arch}.block_count`.

    Each reader takes a default for a key that is not there; without one, a missing key is a CheckpointError, as is a
    value of another type or out of bounds.
    """

    def __init__(self, file: GgufFile) -> None:
        self.file = file

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return self._name(key) in self.file.metadata

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number of `low .. high`."""
        value = self._value(key, default)
        if type(value) is not int:
            raise self.problem(key, f"is {_described(value)}, where a whole number belongs")
        if not low <= value <= high:
            raise self.problem(key, f"is {value}, where {low} to {high} was expected")
        return value

    def number(self, key: str, low: float = -math.inf, high: float = math.inf, default: float | None = None) -> float:
        """A finite number of `low .. high`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.problem(key, f"is {_described(value)}, where a number belongs")
        if not math.isfinite(value) or not low <= value <= high:
            bounds = "a finite number" if low == -math.inf and high == math.inf else f"{low} to {high}"
            raise self.problem(key, f"is {value}, where {bounds} was expected")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.problem(key, f"is {_described(value)}, where true or false belongs")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.problem(key, f"is {_described(value)}, where text belongs")
        return value

    def integers(self, key: str, low: int, high: int, count: int | None = None) -> list[int]:
        """A list of whole numbers of `low .. high`, `count` of them where that is given."""
        value = self._numbers(key, count)
        numbers: list[int] = value.tolist()
        if value.typecode in "fd":
            raise self.problem(key, "is a list of fractions, where whole numbers belong")
        if numbers and not (low <= min(numbers) and max(numbers) <= high):
            raise self.problem(key, f"holds {min(numbers)} to {max(numbers)}, where {low} to {high} was expected")
        return numbers

    def numbers(self, key: str, count: int | None = None) -> list[float]:
        """A list of finite numbers, `count` of them where that is given."""
        numbers: list[float] = self._numbers(key, count).tolist()
        if not all(map(math.isfinite, numbers)):
            raise self.problem(key, "holds a number that is not finite")
        return numbers

    def texts(self, key: str, most: int = 1 << 20) -> list[str]:
        """A list of at most so many strings."""
        value = self._value(key, None)
        if not isinstance(value, Strings):
            raise self.problem(key, f"is {_described(value)}, where a list of texts belongs")
        if len(value) > most:
            raise self.problem(key, f"has {len(value)} values, where at most {most} are read")
        return value.decode()

    def problem(self, key: str, text: str) -> CheckpointError:
        """The error for a value that cannot be: names file and key."""
        return CheckpointError(f"{self.file.paths[0]}: {self._name(key)} {text}.", REFETCH)

    def _name(self, key: str) -> str:
        return key.replace(_ARCHITECTURE, self.file.architecture)

    def _value(self, key: str, default: Value | None) -> Value:
        value = self.file.metadata.get(self._name(key), default)
        if value is None:
            raise self.problem(key, "is missing")
        return value

    def _numbers(self, key: str, count: int | None) -> Numbers:
        value = self._value(key, None)
        if not isinstance(value, array):
            raise self.problem(key, f"is {_described(value)}, where a list of numbers belongs")
        self._check_count(key, len(value), count)
        return value

    def _check_count(self, key: str, found: int, count: int | None) -> None:
        if count is not None and found != count:
            raise self.problem(key, f"has {found} values, where {count} were expected")


def _described(value: Value) -> str:
    if isinstance(value, Strings | array):
        return f"a list of {len(value)} values"
    return shown(value)
