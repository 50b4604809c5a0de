"""Light or dark, as the terminal says."""

from __future__ import annotations

import os
import pty
import threading

import pytest

from app.ui import terminal_background
from app.ui.terminal_background import ask_background, is_light


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", True),
        (b"\x1b]11;rgb:fd/f6/e3\x07\x1b[?62c", True),
        (b"\x1b]11;rgb:0000/2b2b/3636\x1b\\\x1b[?62c", False),
        (b"\x1b[?62c", False),
        (b"", False),
    ],
)
def test_the_colour_is_weighed_as_the_eye_does(answer: bytes, expected: bool) -> None:
    assert is_light(answer) is expected


@pytest.mark.parametrize("answer", [b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62;4c", b"\x1b[?62;4c"])
def test_a_terminal_is_asked_and_what_it_says_is_taken_off_its_input(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    outer, inner = pty.openpty()

    class File:
        def fileno(self) -> int:
            return inner

    def reply() -> None:
        asked = b""
        while not asked.endswith(b"\x1b[c"):
            asked += os.read(outer, 64)
        os.write(outer, answer)

    monkeypatch.setattr(terminal_background, "_PATIENCE_S", 30)
    monkeypatch.setattr("sys.stdin", File())
    monkeypatch.setattr("sys.stdout", File())
    terminal = threading.Thread(target=reply)
    terminal.start()
    assert ask_background().is_light is (b"rgb" in answer)
    terminal.join()
    os.write(outer, b"typed\n")
    assert os.read(inner, 64) == b"typed\n"
    os.close(outer)
    os.close(inner)


def test_what_is_no_terminal_is_dark(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as source, os.fdopen(writing, "w") as target:
        monkeypatch.setattr("sys.stdin", source)
        monkeypatch.setattr("sys.stdout", target)
        assert not ask_background().is_light
