"""Slash commands: typed in the prompt, one row each. Completion, help and the screen read this table."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command. The screen carries it out: `action` names a Textual action, else a method `command_<name>`."""

    name: str
    meaning: str
    argument: str = ""
    """What may follow, for a person; empty: nothing may."""
    needs_argument: bool = False
    action: str = ""
    """What it does when nothing follows."""
    choices: str = ""
    """What can follow, by the name of a list that the screen knows."""


COMMANDS = (
    SlashCommand("help", "keys, commands and words", action="app.help"),
    SlashCommand("new", "an empty chat in the same domain", action="new_chat"),
    SlashCommand("chats", "list of chats", action="app.chats"),
    SlashCommand("open", "open a chat whose title has these words", "WORDS", action="app.chats"),
    SlashCommand("title", "rename this chat", "TITLE", needs_argument=True),
    SlashCommand("system", "set the system prompt; alone: show it", "TEXT"),
    SlashCommand("domain", "begin a chat in a domain", "NAME", action="app.choose_domain", choices="domains"),
    SlashCommand("mode", "exact or approximate, from the next token on", "MODE", action="toggle_mode", choices="modes"),
    SlashCommand("model", "choose a model", action="app.choose_model"),
    SlashCommand("thinking", "whether or how much the model thinks; alone: show or fold it", "CHOICE",
                 action="toggle_thinking", choices="thinking"),
    SlashCommand("copy", "copy the last answer, its last block of code, or the chat", "WHAT",
                 action="copy_turn", choices="copies"),
    SlashCommand("find", "find text in this chat", "TEXT", action="find"),
    SlashCommand("regenerate", "regenerate the last answer", action="regenerate"),
    SlashCommand("continue", "continue an answer that was stopped or cut", action="continue_turn"),
    SlashCommand("edit", "edit the last question, as a new version", action="edit_turn"),
    SlashCommand("branch", "continue from here in a chat of its own", action="branch_turn"),
    SlashCommand("delete", "delete the last question and its answer", action="delete_turn"),
    SlashCommand("undo", "restore what was deleted last: in this chat, or a chat", action="undo_delete"),
    SlashCommand("versions", "the versions of this chat, as a tree", action="show_versions"),
    SlashCommand("context", "take the last turn out of the context, or back into it", action="change_context"),
    SlashCommand("export", "write this chat to a file", "markdown or json, FILE", choices="formats"),
    SlashCommand("clear", "an empty chat; this one is saved", action="new_chat"),
    SlashCommand("stats", "statistics of the last answer"),
    SlashCommand("editor", "write the message in your editor", action="edit_externally"),
    SlashCommand("settings", "all settings", action="app.settings"),
    SlashCommand("quit", "quit; the chat is saved", action="app.quit"),
)  # fmt: skip


class Typed(NamedTuple):
    """What a text in the prompt asks for: a command and what follows it, or a message."""

    command: SlashCommand | None
    argument: str
    message: str
    """What is to be sent to the model; empty: nothing."""
    problem: str = ""
    """Why nothing is done."""


def read(text: str) -> Typed:
    """A line that begins with `/` is a command; one that begins with `//` a message with one of them."""
    if text.startswith("//"):
        return Typed(None, "", text[1:])
    if not text.startswith("/"):
        return Typed(None, "", text)
    name, _, argument = text[1:].partition(" ")
    name, argument = name.strip().lower(), argument.strip()
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        near = difflib.get_close_matches(name, [command.name for command in COMMANDS], 1, 0.5)
        hint = f" Did you mean /{near[0]}?" if near else ""
        return Typed(None, "", "", f"There is no command /{name}.{hint} To send it as it is, begin with //.")
    if argument and not command.argument:
        return Typed(None, "", "", f"Nothing can follow /{command.name}.")
    if command.needs_argument and not argument:
        return Typed(None, "", "", f"Write /{command.name} {command.argument}.")
    return Typed(command, argument, "")


class Completion(NamedTuple):
    """One line of the list: what the prompt becomes, and what it means."""

    text: str
    meaning: str


def completions(text: str, choices: dict[str, tuple[tuple[str, str], ...]]) -> list[Completion]:
    """What a line that begins with `/` can become. `choices` gives (value, meaning) for each list that follows."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text:
        return []
    name, blank, argument = text[1:].partition(" ")
    if not blank:
        found = [command for command in COMMANDS if command.name.startswith(name.lower())]
        return [Completion(f"/{command.name}", f"{command.argument}  {command.meaning}".strip()) for command in found]
    command = next((command for command in COMMANDS if command.name == name.lower()), None)
    offered = choices.get(command.choices, ()) if command is not None else ()
    return [
        Completion(f"/{name} {value}", meaning)
        for value, meaning in offered
        if value.startswith(argument.lower()) and value != argument
    ]
