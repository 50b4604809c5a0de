"""The entry point: subcommands, each imported only when it runs.

Importing this module loads neither torch nor textual, so that `moe-chat --help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from app.command_line.parser import build_parser
from app.command_line.stop_signals import StopSignals, exit_code_of
from app.headless.terminal_text import accept_any_bytes, tell

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

_RUNNERS = {
    "ask": "app.headless.ask:ask",
    "bench": "app.headless.tasks:run",
    "chats": "app.headless.chats:run",
    "clean": "app.headless.clean:run",
    "completion": "app.command_line.completion:run",
    "doctor": "app.headless.doctor:run",
    "paths": "app.headless.places:run",
    "plan": "app.headless.tasks:run",
    "profile": "app.headless.tasks:run",
    "trace": "app.headless.traces:run",
    "tune": "app.headless.tasks:run",
    "verify": "app.headless.tasks:run",
}
"""Where each command is: a module, imported when it runs, and a function from the arguments to the exit code."""


def _run(arguments: argparse.Namespace) -> int:
    runner = _RUNNERS.get(arguments.command) or (
        "app.headless.plain_chat:run" if arguments.plain else "app.launch:chat"
    )
    module, function = runner.split(":")
    return int(getattr(import_module(module), function)(arguments))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: where a signal ended it, 128 and the signal's number.

    No traceback reaches the user's screen: it goes to the log, whose place is printed.
    """
    accept_any_bytes()
    with StopSignals() as stop:
        code = _guarded(argv, stop)
        if stop.number is not None:
            code = exit_code_of(stop.number)
        _flush()
    return code


def _guarded(argv: Sequence[str] | None, stop: StopSignals) -> int:
    """The exit code, whatever is raised."""
    try:
        return _run(build_parser().parse_args(argv))
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
    from app.crash_log import describe, log_crash
    from engine.errors import ConfigError, MoeChatError

    # The engine's errors arrive as words: its complaint about settings is told apart by its title.
    if not isinstance(error, MoeChatError):
        tell(log_crash(error))
        return EXIT_FAILED
    tell(describe(error.title, error.message, error.hint))
    return EXIT_USAGE if error.title == ConfigError.title else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
