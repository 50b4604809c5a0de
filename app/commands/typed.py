"""What is typed at the prompt: a message, or a slash command and what follows it; and how it can be completed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import NamedTuple

from app.commands.table import COMMANDS, Command


class Typed(NamedTuple):
    """What a text in the prompt asks for: a command and what follows it, or a message."""

    command: Command | None
    argument: str
    message: str
    """What is to be sent to the model; empty: nothing."""
    problem: str = ""
    """Why nothing is done."""


def slash_commands(*, on_screen: bool) -> Iterator[Command]:
    """Those that can be typed, in the app or in the plain chat."""
    return (command for command in COMMANDS if command.slash and (on_screen or not command.needs_screen))


def read(text: str, *, on_screen: bool = True) -> Typed:
    """A line that begins with `/` is a command; one that begins with `//` a message with one of them."""
    if text.startswith("//"):
        return Typed(None, "", text[1:])
    if not text.startswith("/"):
        return Typed(None, "", text)
    name, _, argument = text[1:].partition(" ")
    name, argument = name.strip().lower(), argument.strip()
    known = {word: command for command in slash_commands(on_screen=on_screen) for word in command.words}
    command = known.get(name)
    if command is None:
        near = difflib.get_close_matches(name, known, 1, 0.5)
        hint = f" Did you mean /{near[0]}?" if near else ""
        return Typed(None, "", "", f"There is no command /{name}.{hint} To send it as it is, begin with //.")
    if argument and not command.argument:
        return Typed(None, "", "", f"Nothing can follow /{name}.")
    if command.needs_argument and not argument:
        return Typed(None, "", "", f"Write /{name} {command.argument}.")
    return Typed(command, argument, "")


class Completion(NamedTuple):
    """One line of the list: what the prompt becomes, and what it means."""

    text: str
    meaning: str
    replaces: int = 0
    """How many characters before the cursor the text stands for; 0: the whole line."""


def completions(text: str, choices: dict[str, tuple[tuple[str, str], ...]]) -> list[Completion]:
    """What a line that begins with `/` can become. `choices` gives (value, meaning) for each list that follows."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text:
        return []
    name, blank, argument = text[1:].partition(" ")
    if not blank:
        return sorted(_of_name(name.lower()))
    command = read(f"/{name}").command
    offered = choices.get(command.choices, ()) if command is not None else ()
    return [
        Completion(f"/{name} {value}", meaning)
        for value, meaning in offered
        if value.lower().startswith(argument.lower()) and value != argument
    ]


def _of_name(begun: str) -> Iterator[Completion]:
    """Commands whose name begins so; by another word for one only when it is begun."""
    for command in slash_commands(on_screen=True):
        for word in command.words if begun else command.words[:1]:
            if word.startswith(begun):
                yield Completion(f"/{word}", f"{command.takes}  {command.meaning}".strip())
