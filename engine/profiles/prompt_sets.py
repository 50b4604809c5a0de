"""Sets of prompts that profiles are built from: one shipped per domain, and the user's JSONL or text files.

A line that has none of SHAPES is refused with its number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import IO, Any

from engine.errors import ConfigError
from offload.bounded_json import Limits, NotReadable, parse_json, shown
from offload.regular_file import open_regular, why

SHAPES = (
    '{"prompt": ...} (HumanEval is read by it)',
    '{"question": ..., "answer": ...} (GSM8K)',
    '{"question": ..., "choices": [...]} (MMLU)',
    '{"instruction": ..., "input": ...}',
    '{"messages": [{"role": "user", "content": ...}]}',
    '{"text": ...}',
)
"""The JSON objects that are understood, one a line; further keys are ignored. The first that fits is taken."""

_HINT = (
    f"One JSON object a line is understood, in one of these shapes: {'; '.join(SHAPES)}. Or a .txt, one prompt a line."
)
_MAX_LINE_BYTES = 8 << 20
_LIMITS = Limits(max_bytes=_MAX_LINE_BYTES, has_infinity=True)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def shipped_domains() -> tuple[str, ...]:
    """The domains that prompts are shipped for, in alphabetical order."""
    names = [entry.name for entry in files("assets.prompts").iterdir()]
    return tuple(sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")))


def shipped_prompts(domain: str) -> list[str]:
    """The prompts shipped for a domain, in the order of its file. Raises ConfigError naming the other domains."""
    if domain not in shipped_domains():
        raise ConfigError(
            f"No prompts are shipped for a domain {domain!r}.", f"Choose one of {', '.join(shipped_domains())}."
        )
    return list(_read_shipped(domain))


def read_prompts(path: Path, limit: int | None) -> list[str]:
    """The first `limit` prompts of a user's file, or all of them; lines after the last one wanted are not looked at.

    A .txt holds one prompt a line, any other file one JSON object a line, in one of SHAPES. Empty lines are skipped.
    Raises ConfigError naming the file and the line for whatever is no prompt, for a file without any, for bytes that
    are not UTF-8, for a file that cannot be read, and for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"{limit} prompts of {path} were asked for.", "Ask for at least one, or for all.")
    as_prompt = str.strip if path.suffix.lower() == ".txt" else _prompt_of_json
    try:
        with os.fdopen(open_regular(path), "rb") as lines:
            prompts = list(islice(_prompts_in(lines, str(path), as_prompt), limit))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {why(error)}.", "Name a file of prompts. " + _HINT) from error
    if not prompts:
        raise ConfigError(f"{path} holds no prompts: it is empty.", _HINT)
    return prompts


@cache
def _read_shipped(domain: str) -> tuple[str, ...]:
    name = f"{domain}.jsonl"
    with files("assets.prompts").joinpath(name).open("rb") as lines:
        return tuple(_prompts_in(lines, name, _prompt_of_json))


def _prompts_in(lines: IO[bytes], file_name: str, as_prompt: Callable[[str], str]) -> Iterator[str]:
    """Lines are split at newlines only: JSON strings may hold the other separators that str.splitlines knows."""
    for number, line in enumerate(iter(lambda: lines.readline(_MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > _MAX_LINE_BYTES:
            raise ConfigError(f"{file_name}, line {number}: it is longer than {_MAX_LINE_BYTES} bytes.", _HINT)
        content = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        try:
            text = content.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{file_name}, line {number}: byte 0x{content[error.start]:02x} is not UTF-8 text.",
                "Save the file as UTF-8. " + _HINT,
            ) from error
        if not text:
            continue
        try:
            yield as_prompt(text)
        except ValueError as error:
            raise ConfigError(f"{file_name}, line {number}: {error}.", _HINT) from error


def _prompt_of_json(line: str) -> str:
    """Raises ValueError saying what is wrong with the line."""
    try:
        entry = parse_json(line.encode(), _LIMITS)
    except NotReadable as error:
        raise ValueError(f"it is not JSON that can be used: {error}") from error
    if not isinstance(entry, dict):
        raise ValueError("it is JSON, and not an object")
    for key, read in _READERS.items():
        if key in entry:
            return read(entry)
    keys = ", ".join(shown(key) for key in list(entry)[:8]) or "none"
    raise ValueError(f"no shape fits its keys ({keys})")


def _text_of(entry: dict[str, Any], key: str) -> str:
    return _checked(entry[key], f"{key!r}")


def _checked(value: object, name: str) -> str:
    """The value, if a tokenizer can take it: text, not blank, and without half of a surrogate pair."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    if not value.strip():
        raise ValueError(f"{name} is blank")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"{name} holds half a character (a lone surrogate)")
    return value


def _question(entry: dict[str, Any]) -> str:
    """A question as it is, or with its choices below it, lettered."""
    question = _text_of(entry, "question")
    if "choices" not in entry:
        return question
    choices = entry["choices"]
    if not isinstance(choices, list) or not 1 <= len(choices) <= len(ascii_uppercase):
        raise ValueError(f"'choices' is not a list of 1 to {len(ascii_uppercase)} texts")
    lettered = [
        f"{letter}. {_checked(choice, f'choice {letter}')}"
        for letter, choice in zip(ascii_uppercase, choices, strict=False)
    ]
    return question + "\n\n" + "\n".join(lettered)


def _instruction(entry: dict[str, Any]) -> str:
    """An instruction, and below it what it is about, where there is something."""
    instruction = _text_of(entry, "instruction")
    if entry.get("input") in (None, ""):
        return instruction
    return instruction + "\n\n" + _text_of(entry, "input")


def _last_user_message(entry: dict[str, Any]) -> str:
    messages = entry["messages"]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("'messages' is not a list of objects")
    for message in reversed(messages):
        if message.get("role") == "user":
            return _checked(message.get("content"), "the last user message")
    raise ValueError("'messages' holds no message whose role is 'user'")


_READERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "prompt": lambda entry: _text_of(entry, "prompt"),
    "question": _question,
    "instruction": _instruction,
    "messages": _last_user_message,
    "text": lambda entry: _text_of(entry, "text"),
}
"""How an object is read, by the key that tells its shape, in the order of SHAPES."""
