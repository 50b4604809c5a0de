"""What a terminal is sent so that it calls its user: the bell, or a notification of the desktop.

Sources: xterm control sequences (BEL); iTerm2 and ConEmu (OSC 9); rxvt-unicode, foot and VTE (OSC 777); tmux (its
passthrough, which the option `allow-passthrough` has to permit).
"""

from __future__ import annotations

from collections.abc import Mapping

from app.formatting.sanitise import without_obeyed

OFF, BELL, NOTIFICATION = "off", "bell", "notification"
KINDS = (OFF, BELL, NOTIFICATION)

_BEL, _ESC, _END = "\a", "\x1b", "\x1b\\"
_TITLE = "moe-chat"
_SHOWN = 120
_TERMS_WITH_777 = ("rxvt", "foot")


def alert(kind: str, text: str, environment: Mapping[str, str]) -> str:
    """What to write to the terminal of this environment; empty for OFF. `text` is what a notification says."""
    if kind == NOTIFICATION and not environment.get("STY"):  # screen passes nothing on
        return _notification(" ".join(text.split()), environment)
    return "" if kind == OFF else _BEL


def _notification(text: str, environment: Mapping[str, str]) -> str:
    """A terminal that knows both kinds would show two: it gets the one that it has documented."""
    said = without_obeyed(text)[:_SHOWN]
    term = environment.get("TERM", "")
    if term.startswith(_TERMS_WITH_777) or environment.get("VTE_VERSION"):
        sequence = f"{_ESC}]777;notify;{_TITLE};{said.replace(';', ',')}{_END}"
    else:
        sequence = f"{_ESC}]9;{_TITLE}: {said}{_END}"
    if environment.get("TMUX"):
        return f"{_ESC}Ptmux;{sequence.replace(_ESC, _ESC * 2)}{_END}{_BEL}"
    return sequence
