"""What a setting is: how it is written in the file and on the command line, what it may be, what it is for the engine.

A value is what TOML holds: text, a number, or a list of texts; None means that nothing is set. Own code rather than
pydantic-settings (195 ms to import, where `--help` has 150) or msgspec (40 ms): both refuse a whole object, where here
each value is checked by itself, told with its line, and costs only itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from app.formatting.sanitise import whole
from engine import config
from engine.errors import ConfigError

Value = str | int | float | list[str]

_HIGHEST_64_BIT = 2**63 - 1
_SHOWN = 60


class Kind(Enum):
    """How a value is written."""

    TEXT = auto()
    LONG_TEXT = auto()
    CHOICE = auto()
    NUMBER = auto()
    INTEGER = auto()
    BYTES = auto()
    SHARE = auto()
    RATE = auto()
    FOLDERS = auto()
    TEXTS = auto()
    KEYS = auto()


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    key: str
    """`table.name`, as the file has it."""
    title: str
    meaning: str
    group: str
    kind: Kind
    default: Value | None = None
    unset: str = ""
    """What happens when nothing is set, for a person; only where the default is None."""
    low: float | None = None
    high: float | None = None
    allowed: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    """What a choice is among, or what tells it once it is asked for."""
    flags: tuple[str, ...] = ()
    """As it is typed on the command line, the long form last; empty: not there."""
    field: str = ""
    """Of `EngineConfig`, or of `SamplingConfig` for those of the sampling; empty: the engine is not told."""
    acts: str = ""
    """When a change acts, for a person; empty where that is at once, or with the next load."""

    @property
    def table(self) -> str:
        """Its table in the file."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.key.partition(".")[2]

    @property
    def flag(self) -> str:
        """The long form on the command line."""
        return self.flags[-1] if self.flags else ""

    @property
    def variable(self) -> str:
        """The environment's variable that gives it."""
        return _VARIABLES + (self.name if self.name != "name" else self.table).upper()

    @property
    def choices(self) -> tuple[str, ...]:
        """What a choice is among; empty: it is no choice."""
        return self.allowed() if callable(self.allowed) else self.allowed

    @property
    def metavar(self) -> str:
        """What stands for its value in the help of the command line."""
        return _METAVARS.get(self.kind, self.name.upper())

    @property
    def is_sampling(self) -> bool:
        """It says how the next token is drawn."""
        return self.table == "sampling"

    @property
    def is_engine(self) -> bool:
        """It says how a model is loaded and run."""
        return bool(self.field) and not self.is_sampling

    @property
    def default_text(self) -> str:
        """What holds where nothing is set."""
        return self.text(self.default) or self.unset

    @property
    def range_text(self) -> str:
        """What it may be, for a person."""
        match self.kind:
            case Kind.CHOICE:
                return f"one of {', '.join(self.choices)}"
            case Kind.NUMBER | Kind.INTEGER:
                return self._number_text()
            case _:
                return _HOW_WRITTEN[self.kind]

    def _number_text(self) -> str:
        noun = "a whole number" if self.kind is Kind.INTEGER else "a number"
        if self.low is not None and self.high is not None:
            return (
                f"{noun} of 64 bits" if self.high == _HIGHEST_64_BIT else f"{noun} from {self.low:g} to {self.high:g}"
            )
        return f"{noun}, at least {self.low:g}" if self.low is not None else noun

    def text(self, value: Value | None) -> str:
        """A value as it would be typed; empty for None."""
        if value is None:
            return ""
        return ", ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)

    def parse(self, text: str) -> Value | None:
        """What was typed; empty means: nothing set. Raises ConfigError."""
        typed = text.strip()
        if not typed:
            return None
        match self.kind:
            case Kind.FOLDERS | Kind.TEXTS:
                return [part.strip() for part in typed.split(",") if part.strip()]
            case Kind.INTEGER | Kind.NUMBER:
                return self.checked(_number(typed, self))
            case Kind.CHOICE:
                return self.checked(typed.lower())
            case Kind.LONG_TEXT:
                return self.checked(whole(typed))
            case _:
                self.for_engine(typed)
                return self.checked(typed)

    def checked(self, value: object) -> Value:
        """`value` if it is one this setting can have. Raises ConfigError that says what it may be."""
        if _CHECKS[self.kind](self, value):
            assert isinstance(value, str | int | float | list)
            return value
        raise self._misfit(value)

    def for_engine(self, value: Value) -> object:
        """A value as the engine's configuration has it: bytes, a share, bytes per second. Raises ConfigError."""
        if isinstance(value, str) and (parse := _PARSERS.get(self.kind)):
            return parse(value)
        return tuple(map(whole, value)) if isinstance(value, list) else value

    def _misfit(self, value: object) -> ConfigError:
        return ConfigError(f"{_shown(value)} is not {self.range_text}.", f"The default is {self.default_text}.")


_VARIABLES = "MOE_CHAT_"
_METAVARS = {
    Kind.BYTES: "BYTES",
    Kind.SHARE: "SHARE",
    Kind.RATE: "RATE",
    Kind.INTEGER: "N",
    Kind.NUMBER: "X",
    Kind.LONG_TEXT: "TEXT",
    Kind.TEXTS: "TEXT",
}
_PARSERS: dict[Kind, Callable[[str], float]] = {
    Kind.BYTES: config.parse_bytes,
    Kind.SHARE: config.parse_residency,
    Kind.RATE: config.parse_rate,
}
_HOW_WRITTEN = {
    Kind.TEXT: "a text",
    Kind.LONG_TEXT: "a text, of several lines if wanted",
    Kind.BYTES: "a number of bytes, such as 6GiB or 500MB",
    Kind.SHARE: "a share, such as 25% or 0.25, at most 100%",
    Kind.RATE: "a bandwidth, such as 0.5GB/s",
    Kind.FOLDERS: "folders, separated by commas",
    Kind.TEXTS: "texts, separated by commas",
    Kind.KEYS: "one key or several, such as ctrl+n or f6,alt+x",
}


def _number(text: str, setting: Setting) -> int | float:
    try:
        return int(text) if setting.kind is Kind.INTEGER else float(text)
    except ValueError:
        raise setting._misfit(text) from None


def _shown(value: object) -> str:
    """A value for a message, cut where it is long; a number may have more digits than can be written."""
    try:
        written = repr(value)
    except (ValueError, RecursionError):
        return "…"
    return written if len(written) <= _SHOWN else f"{written[: _SHOWN - 1]}…"


def _is_text(setting: Setting, value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(setting: Setting, value: object) -> bool:
    is_kind = isinstance(value, int if setting.kind is Kind.INTEGER else int | float) and not isinstance(value, bool)
    if not is_kind:
        return False
    assert isinstance(value, int | float)
    low, high = setting.low, setting.high
    is_finite = abs(value) <= _HIGHEST_64_BIT if isinstance(value, int) else math.isfinite(value)
    return is_finite and (low is None or value >= low) and (high is None or value <= high)


def _is_choice(setting: Setting, value: object) -> bool:
    return value in setting.choices


def _is_list(setting: Setting, value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(part, str) and part and (setting.kind is Kind.TEXTS or part.strip()) for part in value
    )


def _is_parsed(setting: Setting, value: object) -> bool:
    try:
        return isinstance(value, str) and _PARSERS[setting.kind](value) > 0
    except ConfigError:
        return False


_CHECKS = {
    Kind.TEXT: _is_text,
    Kind.LONG_TEXT: _is_text,
    Kind.KEYS: _is_text,
    Kind.CHOICE: _is_choice,
    Kind.NUMBER: _is_number,
    Kind.INTEGER: _is_number,
    Kind.BYTES: _is_parsed,
    Kind.SHARE: _is_parsed,
    Kind.RATE: _is_parsed,
    Kind.FOLDERS: _is_list,
    Kind.TEXTS: _is_list,
}
