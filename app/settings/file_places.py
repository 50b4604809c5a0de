"""Where things stand in the settings file: the line of each key, and the line and the reason of a syntax error."""

from __future__ import annotations

import re
from difflib import get_close_matches

from app.settings.schema import SETTINGS

_HEADER = re.compile(r"\s*\[\s*([\w.\-\"' ]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w.-]+))\s*=""")
_WORD = re.compile(r"[\w.-]+")
_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)")
_AT_END = "(at end of document)"
_SHOWN = 40


def key_lines(text: str) -> dict[str, int]:
    """The line of each `table.name`, from 1; the first one where a name looks as if it were there twice."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[1].strip("\"'")
        elif key := _KEY.match(line):
            name = next(group for group in key.groups() if group is not None)
            lines.setdefault(f"{table}.{name}".lstrip("."), number)
    return lines


def nearest_key(key: str) -> str:
    """The known key most like `key`, of its table rather than another; empty: none is like it."""
    table, _, name = key.rpartition(".")
    own = {setting.name: setting.key for setting in SETTINGS if setting.table == table}
    every = {setting.name: setting.key for setting in SETTINGS}
    for names, likeness in ((own, 0.6), (every, 0.7)):
        if near := get_close_matches(name, names, 1, likeness):
            return names[near[0]]
    return ""


def syntax_problem(text: str, error: Exception) -> tuple[int | None, str]:
    """The line where `text` stops being TOML, if it is known, and a sentence about why, with the key that is meant."""
    if isinstance(error, RecursionError):
        return None, "values are nested too deeply."
    found = _AT_LINE.search(str(error))
    if _AT_END in str(error):
        return len(text.splitlines()), f"{str(error).replace(_AT_END, '').strip()} at the end of the file."
    if found is None:
        is_number = "digits" in str(error)
        return _longest_line(text), "a number has too many digits." if is_number else f"{error}."
    number = int(found[1])
    lines = text.splitlines()
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    why = f"{_AT_LINE.sub('', str(error))} in {_cut(line)!r}." if line else f"{_AT_LINE.sub('', str(error))}."
    word = _WORD.match(line)
    near = nearest_key(word[0]) if word else ""
    is_other = word is not None and near and near.rpartition(".")[2] != word[0].rpartition(".")[2]
    return number, f"{why} Did you mean {near}?" if is_other else why


def _longest_line(text: str) -> int | None:
    lines = text.splitlines()
    return max(range(len(lines)), key=lambda number: len(lines[number])) + 1 if lines else None


def _cut(line: str) -> str:
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
