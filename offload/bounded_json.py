"""JSON from untrusted files: read within limits of size, depth and number of values, and no key twice.

What Python's own reader lets pass and nothing can use is refused: NaN, numbers of hundreds of digits, and (unless it is
asked for) Infinity. Messages say where, and show long values shortened.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn

_MAX_SHOWN = 60
_MAX_TOLD = 400
_MAX_DIGITS = 64


class Limits(NamedTuple):
    """How much of it is read."""

    max_bytes: int = 4 << 20
    max_depth: int = 32
    """Objects and lists within each other."""
    max_values: int = 1_000_000
    """Commas; half as many objects and lists."""
    has_infinity: bool = False
    """Whether Infinity and -Infinity are numbers; some configurations hold them."""


class NotReadable(ValueError):
    """It is no JSON, or beyond the limits; says why in words that can follow the file's name."""


def parse_json(content: bytes, limits: Limits) -> Any:
    """The value. Raises NotReadable."""
    if len(content) > limits.max_bytes:
        raise NotReadable(f"it has {len(content)} bytes, where at most {limits.max_bytes} are read")
    if content.count(b",") > limits.max_values or content.count(b"[") + content.count(b"{") > limits.max_values // 2:
        raise NotReadable(f"it holds more than {limits.max_values} values")
    try:
        value = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_constant=_infinity if limits.has_infinity else _no_constant,
            parse_int=_whole_number,
        )
    except NotReadable:
        raise
    except UnicodeDecodeError as error:
        raise NotReadable(f"byte {error.start} is not UTF-8 text") from error
    except RecursionError as error:
        raise NotReadable(f"its objects and lists are nested more than {limits.max_depth} deep") from error
    except ValueError as error:
        raise NotReadable(f"it is not valid JSON: {error}") from error
    _check_depth(value, limits.max_depth)
    if b"\\ud" in content or b"\\uD" in content:
        _check_characters(value)
    return value


def parse_object(content: bytes, limits: Limits) -> dict[str, Any]:
    """The object that the JSON holds. Raises NotReadable where it holds anything else."""
    value = parse_json(content, limits)
    if not isinstance(value, dict):
        raise NotReadable(f"it is {kind_of(value)}, not a JSON object")
    return value


def shown(value: object) -> str:
    """The value for a message: as Python writes it, and no longer than a line."""
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return f"{value[:_MAX_SHOWN]!r}... ({len(value)} characters)"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * _MAX_DIGITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, list | dict) and len(value) > _MAX_SHOWN:
        return f"{kind_of(value)} of {len(value)} values"
    text = repr(value)
    return text if len(text) <= 2 * _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def told(failure: Exception) -> str:
    """What an error says, for a message: cut where it quotes a file at length."""
    text = str(failure)
    return text if len(text) <= _MAX_TOLD else f"{text[:_MAX_TOLD]}... ({len(text)} characters)"


def kind_of(value: object) -> str:
    """What JSON calls it, with its article."""
    kinds = ((bool, "true or false"), (dict, "an object"), (list, "a list"), (str, "text"), (int | float, "a number"))
    return next((kind for types, kind in kinds if isinstance(value, types)), "null")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotReadable(f"the key {shown(key)} is there twice")
            seen.add(key)
    return values


def _whole_number(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise NotReadable(f"it holds a number of {len(digits)} digits")
    return int(digits)


def _infinity(name: str) -> float:
    return _no_constant(name) if name == "NaN" else float(name.replace("Infinity", "inf"))


def _no_constant(name: str) -> NoReturn:
    raise NotReadable(f"it holds {name}, which is no number")


def _check_characters(value: object) -> None:
    """Half of a pair of escapes is no character, and no library can write it as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise NotReadable("it holds half a character (a lone surrogate)") from error


def _check_depth(value: object, max_depth: int) -> None:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > max_depth:
            raise NotReadable(f"its objects and lists are nested more than {max_depth} deep")
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
