"""Slash commands as data: reading a line, completing it, and that each can be carried out."""

from __future__ import annotations

import pytest

from app.cli.commands.plain_commands import PlainChat
from app.commands.table import COMMANDS, Command
from app.commands.typed import completions, read, slash_commands
from app.ui.screens.prompt_actions import PromptActions


@pytest.mark.parametrize("command", tuple(slash_commands(on_screen=True)), ids=lambda command: command.name)
def test_every_slash_command_is_bound_wherever_it_can_be_typed(command: Command) -> None:
    assert command.call
    if command.argument or command.call.startswith("command("):
        assert hasattr(PromptActions, f"command_{command.name}")
    assert command.needs_screen != hasattr(PlainChat, f"command_{command.name}")


def test_no_word_means_two_commands() -> None:
    words = [word for command in COMMANDS for word in command.words]
    assert len(set(words)) == len(words)


def test_another_word_for_a_command_is_the_command() -> None:
    assert read("/again").command == read("/regenerate", on_screen=False).command
    assert read("/find x", on_screen=False).problem.startswith("/find needs the full screen")
    assert [completion.text for completion in completions("/cl", {})] == ["/clear"]
    assert "/clear" not in [completion.text for completion in completions("/", {})]


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
