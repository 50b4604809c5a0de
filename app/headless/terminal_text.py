"""Standard output and input as they are used without a screen: bold where it can be, JSON that no terminal obeys."""

from __future__ import annotations

import json
import os
import re
import sys

from engine.errors import ConfigError

_CONTROLS = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def json_text(value: object, indent: int | None = 2) -> str:
    """JSON in which everything that a terminal might obey is escaped; other scripts stay readable."""
    written = json.dumps(value, ensure_ascii=False, indent=indent)
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


def json_line(value: object) -> str:
    """JSON in one line."""
    return json_text(value, indent=None)


def bold(text: str) -> str:
    """`text` in bold on a terminal, unless NO_COLOR is set."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def confirmed(question: str) -> bool:
    """Ask on the terminal; only `y` and `yes` are a yes. Raises ConfigError where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise ConfigError("There is nobody to ask: standard input is no terminal.", "Give --yes.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
