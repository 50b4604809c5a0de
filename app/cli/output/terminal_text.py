"""Where text leaves for a terminal or a pipe, and the one place that prints.

Whatever is said is made safe here, not by those who say it: control characters, text directions and lone surrogates
become visible signs, and what the output's encoding lacks becomes `?`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from app.cli.usage import UsageError
from app.formatting.sanitise import json_text, visible
from app.storage.system_errors import reason
from engine.errors import MoeChatError

_CLEAR_LINE = "\r\x1b[2K"


class OutputError(MoeChatError):
    """What a command says cannot be written where it was told to write."""

    title = "Output"

    def __init__(self, error: OSError) -> None:
        hint = "Free some space there, or send it elsewhere."
        super().__init__(f"Standard output cannot be written: {reason(error)}.", hint)


class Bold(str):
    """A piece of text that is printed in bold, where the output is a terminal and NO_COLOR is not set."""

    __slots__ = ()


def say(*pieces: str, end: str = "\n", stream: IO[str] | None = None) -> None:
    """Print text at once, on standard output if no other stream is given."""
    stream = stream or sys.stdout
    is_styled = stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
    _write(stream, "".join(_styled(piece, is_styled=is_styled) for piece in pieces) + end)


def tell(*pieces: str, end: str = "\n") -> None:
    """Print a remark on standard error."""
    say(*pieces, end=end, stream=sys.stderr)


def say_json(value: object, indent: int | None = 2) -> None:
    """Print JSON on standard output; `indent` None: in one line."""
    _write(sys.stdout, _encodable_json(json_text(value, indent)) + "\n")


def say_exported(text: str) -> None:
    """Print what `export.as_json` made, which is safe as it is: made visible it would not come back as it was."""
    _write(sys.stdout, _encodable_json(text))


def clear_line() -> None:
    """Empty the terminal's line on standard error."""
    _write(sys.stderr, _CLEAR_LINE)


def call_user(sequence: str) -> None:
    """Send what `app.formatting.alert` made to the terminal of standard error, if it is one."""
    if sequence and sys.stderr is not None and sys.stderr.isatty():
        _write(sys.stderr, sequence)


def confirmed(question: str) -> bool:
    """Ask on the terminal; only `y` and `yes` are a yes. Raises UsageError where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError("Not a terminal, so nothing can be asked.", "Pass --yes.")
    tell(f"{question} [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def accept_any_bytes() -> None:
    """Let no byte and no character stop a command: what cannot be read or written is replaced. A standard stream that
    is closed leads nowhere, so that no file of the program takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  it is never closed
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            with contextlib.suppress(OSError, ValueError):
                reconfigure(errors="replace")


def _styled(piece: str, *, is_styled: bool) -> str:
    text = visible(piece)
    return f"\x1b[1m{text}\x1b[0m" if is_styled and isinstance(piece, Bold) else text


def _encodable_json(text: str) -> str:
    """JSON as it is, or with escapes where the encoding of standard output lacks a character of it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if text.encode(encoding, "replace").decode(encoding, "replace") == text:
        return text
    return re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], text)


def _write(stream: IO[str] | None, text: str) -> None:
    """Write text, whatever the encoding lacks. A remark that nobody can be told is dropped. Raises OutputError, and
    BrokenPipeError where the reader has gone."""
    if stream is None:  # there is none, as under pythonw
        return
    try:
        _write_encoded(stream, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is not sys.stderr:
            raise OutputError(error) from error


def _write_encoded(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def print_report(
    lines: Sequence[str], figures: Mapping[str, object], settings: Mapping[str, str], *, is_json: bool
) -> None:
    """The report, and the settings that it was made under where they are not the defaults."""
    if is_json:
        under = {"settings": dict(settings)} if settings else {}
        say_json({**under, **figures})
        return
    say("\n".join(lines))
    if settings:
        say("settings: " + ", ".join(f"{key} = {text}" for key, text in settings.items()))
