"""`moe-chat completion`: a script that makes bash, zsh or fish complete the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

from app.cli.arguments.parser import build_parser
from app.cli.output.terminal_text import say
from app.domains.domain import all_domains
from app.settings.schema import setting_named

_WORDS = {
    "CHAT": shtab.cmd("moe-chat chats list --ids 2>/dev/null"),
    "FILE": shtab.FILE,
    "NAME": shtab.FILE,
    "PRESET": shtab.cmd("moe-chat presets --names 2>/dev/null"),
}
"""What stands for a value of that name: a command that lists them, or files. A model may be a folder."""


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat completion`; returns the exit code."""
    parser = build_parser()
    domains = [domain.name for domain in all_domains()]
    for action in _actions(parser):
        setting = setting_named(action.dest)
        if action.metavar in _WORDS:
            action.complete = _WORDS[str(action.metavar)]  # type: ignore[attr-defined]
        elif setting is not None and setting.choices:
            action.choices = setting.choices
        elif action.metavar == "DOMAIN":
            action.choices = domains
    say(shtab.complete(parser, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and argument of the parser and its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
