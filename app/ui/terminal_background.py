"""Whether the terminal is light, asked of the terminal itself.

Source of the sequences: xterm control sequences, "Operating System Commands" (OSC 11) and "Device Attributes" (DA1).
Every terminal answers DA1, so that one that does not know OSC 11 is not waited for.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from typing import NamedTuple

_ASK = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
_END = re.compile(rb"\x1b\[\?[\d;]*c")
_PATIENCE_S = 0.5


class Background(NamedTuple):
    """What the terminal said."""

    is_light: bool
    read: bytes = b""
    """Its answers, and what the user typed meanwhile."""


def ask_background() -> Background:
    """Ask the terminal of standard input; dark where it does not say."""
    try:
        answer = _answer(sys.stdin.fileno(), sys.stdout.fileno())
    except (OSError, ValueError, termios.error):
        return Background(is_light=False)
    return Background(is_light(answer), answer)


def is_light(answer: bytes) -> bool:
    """Whether the colour in an answer to OSC 11 is nearer to white than to black, as the eye weighs it."""
    colour = _COLOUR.search(answer)
    if colour is None:
        return False
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in colour.groups())
    brightness: float = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return brightness > 0.5


def _answer(source: int, target: int) -> bytes:
    before = termios.tcgetattr(source)
    answer, deadline = b"", time.monotonic() + _PATIENCE_S
    try:
        tty.setcbreak(source, termios.TCSANOW)
        os.write(target, _ASK)
        while not _END.search(answer) and (left := deadline - time.monotonic()) > 0:
            if select.select([source], [], [], left)[0]:
                answer += os.read(source, 1024)
    finally:
        termios.tcsetattr(source, termios.TCSANOW, before)
    return answer
