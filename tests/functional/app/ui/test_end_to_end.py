"""The real app on the real demo in a terminal, from the first start to finding the chat again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.app.terminal import CTRL_G, CTRL_Q, CTRL_R, DOWN, ENTER, ESCAPE, F5, Terminal

_QUESTION = "Tell me a long story about a lighthouse"
_WRITING = "tok/s  ·  esc stops"


@pytest.fixture
def environment(tmp_path: Path, demo_folder: Path) -> dict[str, str]:
    """A home in which nothing is yet; the demo lies in the cache."""
    assert demo_folder.is_dir()
    return {**os.environ, "MOE_CHAT_HOME": str(tmp_path), "TERM": "xterm-256color"}


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def open_app(terminals: list[Terminal], environment: dict[str, str]) -> Terminal:
    terminals.append(Terminal([sys.executable, "-m", "app.cli"], environment))
    return terminals[-1]


def test_a_day_with_the_demo(terminals: list[Terminal], environment: dict[str, str]) -> None:
    app = open_app(terminals, environment)
    check_the_first_start(app)
    check_an_answer_under_both_modes(app)
    check_another_answer_to_the_same_question(app)
    app.send(CTRL_Q)
    assert app.wait(5) == 0
    check_the_chat_is_found_again(open_app(terminals, environment))


def check_the_first_start(app: Terminal) -> None:
    app.see("Which model?", "The demo")
    app.send(ENTER)
    app.see("How much of it on the device?")
    app.send(ENTER)
    app.see("What is this chat about?")
    app.see("is ready")
    app.send(5 * DOWN + ENTER)
    app.see("Writing", "Type a message")


def check_an_answer_under_both_modes(app: Terminal) -> None:
    app.send(_QUESTION + ENTER)
    app.see(_WRITING, "◆ EXACT")
    app.send(F5)
    app.see("≈ APPROX", "exact → approx at token")
    app.see(_WRITING)
    app.send(ESCAPE)
    app.until(lambda: _WRITING not in app.text and "stopping" not in app.text, "it was not stopped")
    app.see(_QUESTION, "stopped", "TTFT")


def check_another_answer_to_the_same_question(app: Terminal) -> None:
    app.send(CTRL_G)
    app.see(_WRITING)
    app.send(ESCAPE)
    app.until(lambda: _WRITING not in app.text and "stopping" not in app.text, "it was not stopped")
    app.see(_QUESTION, "2 of 2")


def check_the_chat_is_found_again(app: Terminal) -> None:
    app.see("What is this chat about?")
    app.send(CTRL_R)
    app.see(_QUESTION[:20])
    app.send(ENTER)
    app.see(_QUESTION, "TTFT", "Writing")
    app.send(CTRL_Q)
    assert app.wait(5) == 0
