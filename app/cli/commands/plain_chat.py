"""`moe-chat --plain`: a chat line by line. Nothing is drawn over, so that screen readers and pipes can follow it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from dataclasses import replace

from app.cli.answer import HeadlessAnswers
from app.cli.arguments.chats import LAST
from app.cli.chat_preset import starting_mode
from app.cli.commands.plain_commands import PlainChat, run_command
from app.cli.engine_run import EngineFailure, InputInterrupted, Interrupt, counted_as_running, running_engine
from app.cli.output.screen import HeadlessScreen
from app.cli.saving import saving
from app.cli.usage import EXIT_OK
from app.commands import typed
from app.domains.domain import domain_named
from app.formatting.sanitise import whole
from app.process.crash_log import describe
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.recorder import Recorder
from app.storage.store import ChatStore
from engine.errors import MoeChatError

_BLOCK = '"""'
_HOW_TO = 'Type a message and press enter; """ begins and ends several lines. /help lists commands, /quit leaves.'


def run(arguments: argparse.Namespace) -> int:
    """Chat until the input ends or the user leaves; returns the exit code. Raises MoeChatError."""
    settings, screen = Settings.of(arguments), HeadlessScreen(is_plain=True)
    for problem in settings.problems:
        screen.note(problem)
    domain = domain_named(settings.text("chat.domain"))
    config = replace(settings.engine_config(), domain=domain.name, mode=starting_mode(settings))
    store = ChatStore(AppPaths.from_environment().chats_db)
    with contextlib.ExitStack() as held:
        held.enter_context(counted_as_running(screen))
        recorder = Recorder(store, screen.note)
        held.enter_context(saving(recorder, screen))
        link, ready = held.enter_context(running_engine(config, screen))
        answers = HeadlessAnswers(link, ready, screen, settings, config.mode, config.strategy)
        chat = PlainChat(store, recorder, screen, settings, answers, domain)
        screen.note(f"{ready.model_name} is ready; the domain is {domain.title}. {_HOW_TO}")
        if arguments.goes_on and store.num_chats():
            chat.command_open(LAST)
        question = whole(" ".join(getattr(arguments, "question", []))).strip()
        _converse(chat, screen, question)
    return EXIT_OK


def _converse(chat: PlainChat, screen: HeadlessScreen, question: str) -> None:
    """Answer `question`, if there is one, then read and answer until the end. What goes wrong is said; only the end of
    the engine ends the chat."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            importlib.import_module("readline")  # gives `input` editing and history
    while not chat.is_over:
        message, question = question or _next_message(screen), ""
        if message is None:
            screen.note("" if sys.stdin.isatty() else "The input has ended.")
            return
        try:
            command, argument, text, problem = typed.read(message, on_screen=False)
            if problem:
                screen.note(problem)
            elif command is not None:
                run_command(chat, command, argument)
            elif text.strip():
                chat.ask(text.strip())
        except MoeChatError as error:
            if isinstance(error, EngineFailure) and error.failure.is_fatal:
                raise
            screen.note(describe(error.title, error.message, error.hint))


def _next_message(screen: HeadlessScreen) -> str | None:
    """As `_read_message`. On a terminal the first ctrl+c drops what is typed, and says how to leave."""
    if not sys.stdin.isatty():
        return _read_message()
    interrupt = Interrupt()
    with interrupt.installed():
        while True:
            try:
                return interrupt.read(_read_message)
            except InputInterrupted:
                screen.note("\nctrl+c again, ctrl+d or /quit leaves.")


def _read_message() -> str | None:
    """One message: a line, or lines between two `\"\"\"`. None at the end of the input."""
    line = _read_line("> ")
    if line is None or not line.lstrip().startswith(_BLOCK):
        return line
    lines, rest = [], line.lstrip()[len(_BLOCK) :]
    while _BLOCK not in rest:
        lines.append(rest)
        further = _read_line("… ")
        if further is None:
            break
        rest = further
    else:
        lines.append(rest[: rest.index(_BLOCK)])
    return "\n".join(lines).strip()


def _read_line(prompt: str) -> str | None:
    """A line of standard input; the prompt is shown on a terminal only."""
    try:
        return whole(input(prompt if sys.stdin.isatty() else ""))
    except EOFError:
        return None
