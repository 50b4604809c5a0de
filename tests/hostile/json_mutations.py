"""Seeded damage to JSON: what a parser accepts and nobody meant, and what it must not accept."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

_DEEP, _DIGITS = "@deep@", "@digits@"
_HUGE = (-1, 0, 1, 10**5, 2**31, 2**63, 10**9, 10**18, -(10**9), 10**40, 1e308, 0.5, -0.0, 1e-320)
_OTHERS = (None, True, False, 0, -1, 3, 1.5, "", "x", "3", [], {}, [1], [[]], {"a": 1}, ["x", None])
_CONSTANTS = (float("nan"), float("inf"), float("-inf"))


def _other(random: Random) -> Any:
    """A value of its own: what is changed in it later stays in the case."""
    return copy.deepcopy(random.choice(_OTHERS))


Place = tuple[Any, Any]
"""(container, key or position)."""


def _places(value: Any) -> list[Place]:
    found: list[Place] = []
    level = [value]
    while level:
        keyed = [(item, key) for item in level for key in (item if isinstance(item, dict) else range(len(item)))]
        found += keyed
        level = [item[key] for item, key in keyed if isinstance(item[key], dict | list)]
    return found


def _at_random(value: Any, random: Random, change: Callable[[Any], Any]) -> Any:
    places = _places(value)
    if places:
        container, key = random.choice(places)
        container[key] = change(container[key])
    return value


def _rename(value: Any, random: Random) -> Any:
    keys = [(item, key) for item, key in _places(value) if isinstance(item, dict)]
    if keys:
        item, key = random.choice(keys)
        item[random.choice((key.upper(), key + "_", "x" * 5000, "", "\udc80", "a\0b"))] = item.pop(key)
    return value


def _delete(value: Any, random: Random) -> Any:
    places = _places(value)
    if places:
        item, key = random.choice(places)
        del item[key]
    return value


def _swap(value: Any, random: Random) -> Any:
    places = _places(value)
    if len(places) > 1:
        (one, a), (other, b) = random.sample(places, 2)
        one[a], other[b] = json.loads(json.dumps(other[b])), json.loads(json.dumps(one[a]))
    return value


def _grow(value: Any, random: Random) -> Any:
    """Thousands of keys more."""
    container, _ = random.choice(_places(value) or [(value, None)])
    if isinstance(container, dict):
        container.update({f"key{number}": _other(random) for number in range(40_000)})
    else:
        container.extend([0] * 100_000)
    return value


_CHANGES: dict[str, Callable[[Any, Random], Any]] = {
    "another type": lambda value, random: _at_random(value, random, lambda _: _other(random)),
    "a huge number": lambda value, random: _at_random(value, random, lambda _: random.choice(_HUGE)),
    "no number": lambda value, random: _at_random(value, random, lambda _: random.choice(_CONSTANTS)),
    "a long text": lambda value, random: _at_random(value, random, lambda _: random.choice("aé🐝") * 5000),
    "strange text": lambda value, random: _at_random(
        value, random, lambda _: random.choice(("\udc80", "a\0b", "../x"))
    ),
    "in a list": lambda value, random: _at_random(value, random, lambda old: [old]),
    "nested deeply": lambda value, random: _at_random(value, random, lambda _: _DEEP),
    "too many digits": lambda value, random: _at_random(value, random, lambda _: _DIGITS),
    "a renamed key": _rename,
    "a missing key": _delete,
    "swapped values": _swap,
    "many keys": _grow,
    "something else": lambda value, random: random.choice((None, 3, "text", [], [value], {})),
}
JSON_CHANGES = (*_CHANGES, "a key twice")


def changed_json(content: bytes, how: str, random: Random) -> bytes:
    """The JSON of `content`, damaged in one of the ways of JSON_CHANGES, with one mutation or a few."""
    value = json.loads(content)
    if how == "a key twice":
        return _with_key_twice(value, random)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not isinstance(value, dict | list):
            break
        value = _CHANGES[how](value, random)
    text = json.dumps(value)
    depth, digits = random.choice((10, 100, 2000, 100_000)), random.choice((30, 400, 5000))
    text = text.replace(f'"{_DEEP}"', "[" * depth + "]" * depth).replace(f'"{_DIGITS}"', "9" * digits)
    return text.encode("utf-8", "surrogatepass")


def _with_key_twice(value: Any, random: Random) -> bytes:
    text = json.dumps(value)
    objects = [item for item, _ in _places([value]) if isinstance(item, dict) and item]
    item = random.choice(objects) if objects else {"a": 1}
    key = random.choice(list(item))
    inner = json.dumps(item)
    doubled = f"{{{json.dumps(key)}: {json.dumps(_other(random))}, {inner[1:]}"
    return text.replace(inner, doubled, 1).encode()
