"""Slash commands as data: reading a line, completing it, and that each can be carried out."""

from __future__ import annotations

import pytest

from app.chat.commands import COMMANDS, completions, read
from app.settings.actions import ACTIONS
from app.ui.screens.chat_commands import ChatCommands

CALLS = {action.call for action in ACTIONS} | {f"app.{action.call}" for action in ACTIONS if action.scope == "app"}
CALLS |= {action.call.removeprefix("screen.") for action in ACTIONS}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_can_be_carried_out(command) -> None:  # type: ignore[no-untyped-def]
    if command.action:
        assert command.action in CALLS
    if command.argument or not command.action:
        assert hasattr(ChatCommands, f"command_{command.name}")


@pytest.mark.parametrize(
    ("text", "name", "argument", "message"),
    [
        ("hello /help", None, "", "hello /help"),
        ("/help", "help", "", ""),
        ("/Mode  approx ", "mode", "approx", ""),
        ("//help", None, "", "/help"),
        ("/system be brief\nand kind", "system", "be brief\nand kind", ""),
    ],
)
def test_a_line_is_a_message_or_a_command(text: str, name: str | None, argument: str, message: str) -> None:
    typed = read(text)
    assert (typed.command.name if typed.command else None, typed.argument, typed.message) == (name, argument, message)
    assert not typed.problem


@pytest.mark.parametrize(
    ("text", "said"),
    [("/hlep", "Did you mean /help?"), ("/etc/passwd", "begin with //"), ("/quit now", "Nothing can follow"),
     ("/title", "Write /title TITLE.")],
)  # fmt: skip
def test_what_is_no_command_is_said(text: str, said: str) -> None:
    typed = read(text)
    assert said in typed.problem
    assert (typed.command, typed.message) == (None, "")


def test_names_and_what_follows_are_completed() -> None:
    modes = {"modes": (("exact", "all"), ("approx", "some"))}
    assert [completion.text for completion in completions("/mo", modes)] == ["/mode", "/model"]
    assert [completion.text for completion in completions("/mode ", modes)] == ["/mode exact", "/mode approx"]
    assert [completion.text for completion in completions("/mode a", modes)] == ["/mode approx"]
    assert completions("/mode approx", modes) == []
    assert completions("//", modes) == completions("hello", modes) == completions("/mode\n", modes) == []
