"""What is sent to a terminal so that it calls its user: one kind, whatever the text, never a command of the text's."""

from __future__ import annotations

import re

import pytest

from app.formatting.alert import BELL, NOTIFICATION, OFF, alert

_HOSTILE = "done\x1b]52;c;eHh4\x07\x9d8;;\u202eevil\n;x\x00\ud800" + "long " * 100


@pytest.mark.parametrize(
    ("environment", "begins"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b]9;moe-chat: done"),
        ({"TERM": "foot"}, "\x1b]777;notify;moe-chat;done"),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "\x1b]777;notify;moe-chat;done"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux"}, "\x1bPtmux;\x1b\x1b]9;moe-chat: done"),
    ],
)
def test_a_notification_holds_one_sequence_whatever_it_says(environment: dict[str, str], begins: str) -> None:
    sent = alert(NOTIFICATION, _HOSTILE, environment)
    assert sent.startswith(begins)
    one = r"\x1b\]([^\x00-\x1f\x7f-\x9f]*)\x1b\\"
    if "TMUX" in environment:
        one = r"\x1bPtmux;" + one.replace(r"\x1b\\", r"\x1b\x1b\\").replace(r"\x1b\]", r"\x1b\x1b\]") + r"\x1b\\\x07"
    found = re.fullmatch(one, sent)
    assert found is not None
    assert "\u202e" not in found[1]
    assert not found[1].startswith("777") or found[1].count(";") == 3
    assert len(sent.encode()) < 250


def test_the_bell_alone_where_nothing_else_is_wanted_or_passed_on() -> None:
    assert alert(BELL, "done", {}) == "\x07"
    assert alert(NOTIFICATION, "done", {"TERM": "screen", "STY": "1.pts"}) == "\x07"
    assert alert(OFF, "done", {}) == ""
