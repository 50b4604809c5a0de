"""What several commands take: the options of the settings, and numbers that are counts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from app.cli.usage import UsageError
from app.settings.schema import ENGINE_SETTINGS, SAMPLING_SETTINGS, SETTINGS
from app.settings.setting import Kind, Setting
from engine.config import RECORDED_TOK

SIGNAL_CODES = "130 interrupted · 143 ended by SIGTERM · 129 by SIGHUP"
EXIT_CODES = f"exit codes: 0 done · 1 the engine or the model failed · 2 wrong usage or settings · {SIGNAL_CODES}"

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: Commands, name: str, meaning: str, description: str | None = None) -> argparse.ArgumentParser:
    """A command with the usual exit codes."""
    return commands.add_parser(name, help=meaning, description=description, epilog=EXIT_CODES)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command with an engine has. A subcommand's value wins over one given before it."""
    _add(parser, "engine", ENGINE_SETTINGS)


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    """Those of the engine, how the next token is drawn, and what a chat begins with."""
    _add(parser, "chat", (setting for setting in SETTINGS if not setting.is_engine and not setting.is_sampling))
    add_engine_options(parser)
    _add(parser, "sampling", SAMPLING_SETTINGS)


def add_task_options(task: argparse.ArgumentParser) -> None:
    """Those of a command that measures or makes something with the engine, and prints a report."""
    add_json(task)
    add_engine_options(task)


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def add_prompt_options(parser: argparse.ArgumentParser) -> None:
    """The prompts that a model answers while its routing is looked at."""
    parser.add_argument("--domain", metavar="DOMAIN", help="the domain whose own prompts are used (default: general)")
    parser.add_argument("--prompts", metavar="FILE", help="your prompts: JSON objects, one a line, or a .txt")
    add_count(parser, "--max-prompts", "use the first N prompts (default: all)")
    add_count(parser, "--tokens", "tokens written per prompt, at most", RECORDED_TOK)


def add_count(parser: argparse.ArgumentParser, flag: str, meaning: str, default: int | None = None) -> None:
    """An option that is a whole number of at least one."""
    shown = meaning if default is None else f"{meaning} (default: {default})"
    parser.add_argument(flag, metavar="N", type=_count_of(flag), default=default, help=shown)


def _count_of(flag: str) -> Callable[[str], int]:
    def count(text: str) -> int:
        number = int(text)
        if number < 1:
            raise UsageError(f"{flag} is {number}.", "It must be at least 1.")
        return number

    count.__name__ = "whole number"  # argparse names it where the text is none
    return count


def _add(parser: argparse.ArgumentParser, name: str, settings: Iterable[Setting]) -> None:
    """A group of options. Values stay text until a command runs; `Settings.of` reads them by the setting's key."""
    group = parser.add_argument_group(name)
    for setting in settings:
        if setting.flags:
            group.add_argument(
                *setting.flags,
                dest=setting.key,
                metavar=setting.metavar,
                action="append" if setting.kind is Kind.TEXTS else "store",
                default=argparse.SUPPRESS,
                help=_help(setting).replace("%", "%%"),
            )


def _help(setting: Setting) -> str:
    """Its meaning, what it may be where that is not a number, and its default."""
    choices = f" One of {', '.join(setting.choices)}." if isinstance(setting.allowed, tuple) and setting.choices else ""
    return f"{setting.meaning}{choices} (default: {setting.default_text})"
