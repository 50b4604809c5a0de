"""The entry point: subcommands, each imported only when it runs.

Importing this module loads neither torch nor textual, so that `moe-chat --help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from app.cli.arguments.parser import build_parser
from app.cli.output.terminal_text import accept_any_bytes, tell
from app.cli.usage import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, UsageError
from app.process.stop_signals import StopSignals, exit_code_of

_RUNNERS = {
    "ask": "app.cli.commands.ask:ask",
    "bench": "app.cli.commands.tasks:run",
    "chats": "app.cli.commands.chats:run",
    "clean": "app.cli.commands.clean:run",
    "completion": "app.cli.commands.completion:run",
    "doctor": "app.cli.commands.doctor:run",
    "models": "app.cli.commands.models:run",
    "paths": "app.cli.commands.paths:run",
    "plan": "app.cli.commands.tasks:run",
    "presets": "app.cli.commands.presets:run",
    "profile": "app.cli.commands.tasks:run",
    "trace": "app.cli.commands.tasks:run",
    "tune": "app.cli.commands.tasks:run",
    "verify": "app.cli.commands.tasks:run",
}
"""Where each command is: a module, imported when it runs, and a function from the arguments to the exit code."""


def _run(arguments: argparse.Namespace) -> int:
    runner = _RUNNERS.get(arguments.command) or (
        "app.cli.commands.plain_chat:run" if arguments.plain or _is_dumb_terminal() else "app.ui.launch:chat"
    )
    module, function = runner.split(":")
    return int(getattr(import_module(module), function)(arguments))


def _is_dumb_terminal() -> bool:
    """Nothing can be drawn on the terminal, as in an editor's shell; said where it is so."""
    is_dumb = os.environ.get("TERM") == "dumb" and sys.stdin.isatty()
    if is_dumb:
        tell("TERM is dumb: nothing can be drawn on this terminal. The chat goes line by line, as with --plain.")
    return is_dumb


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return run_guarded(lambda: _run(build_parser().parse_args(argv)))


def run_guarded(command: Callable[[], int]) -> int:
    """Run `command`; returns the exit code: where a signal ended it, 128 and the signal's number.

    No traceback reaches the user's screen: it goes to the log, whose place is printed.
    """
    accept_any_bytes()
    with StopSignals() as stop:
        code = _guarded(command, stop)
        if stop.number is not None:
            code = exit_code_of(stop.number)
        _flush()
    return code


def _guarded(command: Callable[[], int], stop: StopSignals) -> int:
    """The exit code, whatever is raised."""
    try:
        return command()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001  the last resort: whatever it was goes to the log
        # What goes wrong while a signal ends the program, such as writing to a terminal that is gone, is its doing.
        return EXIT_FAILED if stop.number is not None else _report(error)


def _flush() -> None:
    """Write what is buffered. Where nobody reads it, it is dropped, and the interpreter's end does not try again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def _report(error: Exception) -> int:
    from app.process.crash_log import describe, log_crash
    from app.storage.system_errors import SystemRefusal, advice
    from engine.errors import ConfigError, MoeChatError

    if isinstance(error, OSError) and advice(error):  # what the system refuses is no error of the program
        error = SystemRefusal(error)
    # The engine's errors arrive as words: its complaint about settings is told apart by its title.
    if not isinstance(error, MoeChatError):
        tell(log_crash(error))
        return EXIT_FAILED
    tell(describe(error.title, error.message, error.hint))
    return EXIT_USAGE if error.title in (ConfigError.title, UsageError.title) else EXIT_FAILED
