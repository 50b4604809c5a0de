"""The app in a real terminal: bytes that are no text, keys before and between, no shell to suspend to, an editor over
an answer."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from app.storage.records import PARTIAL
from app.storage.store import ChatStore
from tests.functional.app.terminal import CTRL_Q, CTRL_Z, ENTER, Terminal

CTRL_E = "\x05"

Open = Callable[..., Terminal]


@pytest.fixture
def open_app(tmp_path: Path) -> Iterator[Open]:
    """Opens the app on an engine that writes slowly; more variables of the environment may be given."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.toml").touch()
    opened: list[Terminal] = []

    def run(*, columns: int = 120, rows: int = 40, **variables: str) -> Terminal:
        home = {"MOE_CHAT_HOME": str(tmp_path), "TERM": "xterm-256color", "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-m", "tests.functional.app.on_played_engine"]
        opened.append(Terminal(command, {**os.environ, **home, **variables}, columns=columns, rows=rows))
        return opened[-1]

    yield run
    for terminal in opened:
        terminal.close()


def test_what_a_terminal_sends_is_text_and_nothing_else(open_app: Open) -> None:
    app = open_app()
    app.send("typed early ")
    app.see("often wrong", "typed early")
    app.send_bytes(b"caf\xe9 \x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\\x1b[?62;22cend")
    app.see("typed early caf\ufffd end")
    app.send(CTRL_Z)
    app.see("no shell to suspend to", "typed early caf\ufffd end")
    app.send(CTRL_Q)
    assert app.wait(20) == 0


def test_an_answer_is_kept_while_an_editor_is_open(open_app: Open, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho in the editor; read -r line; echo written > $1\n")
    editor.chmod(0o755)
    app = open_app(VISUAL=str(editor))
    app.see("is ready")
    app.send("capital?")
    app.see("capital?")
    app.send(ENTER + CTRL_E)
    app.see("in the editor")
    store = ChatStore(tmp_path / "data" / "chats.db")
    app.until(lambda: "centre" in _answer(store), "the answer was not saved")
    store.close()
    app.send(ENTER)
    app.see("centre", "written")


def _answer(store: ChatStore) -> str:
    turns = [turn for chat in store.chats() for turn in store.turns(chat.chat_id)]
    return turns[1].text if len(turns) == 2 else ""


def test_a_terminal_that_cannot_draw_has_the_plain_chat(open_app: Open) -> None:
    app = open_app(TERM="dumb")
    app.see("TERM is dumb", "/help lists commands")
    app.send("capital?\n")
    app.see("It is Paris.")
    app.send("/quit\n")
    assert app.wait(20) == 0


WORDS = (
    "government",
    "Middle",
    "centre",
    "trade",
    "Railways",
    "later",
    "there",
    "country",
    "enough",
    "unknown",
    "Lyon",
)
"""Words of the answer."""
LOST_S = 1.0
SLACK_S = 2.0
"""A beat of the app, and what a busy machine takes to draw it."""


@pytest.mark.parametrize("number", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 50))])
def test_a_killed_app_loses_nothing_older_than_a_second(open_app: Open, tmp_path: Path, number: int) -> None:
    app = open_app(columns=70, rows=24)  # fewer rows and no panels: it is drawn and read faster
    app.see("What is this chat about?")
    app.send("question")
    app.see("question")
    app.send(ENTER)
    seen_at, killed_at = _killed(app, LOST_S + SLACK_S + (1 + number % 12) / 10)
    store = ChatStore(tmp_path / "data" / "chats.db")
    (chat,) = store.chats()
    question, answer = store.turns(chat.chat_id)
    store.close()
    kept = [word for word, at in seen_at.items() if at < killed_at - LOST_S - SLACK_S]
    assert kept, "the answer was not watched for long enough"
    assert question.text == "question"
    assert [word for word in kept if word not in answer.text] == []
    assert answer.state == PARTIAL


def _killed(app: Terminal, watched_s: float) -> tuple[dict[str, float], float]:
    """Kill it when its answer has been seen for that long; returns when each word was seen first, and the time."""
    seen_at: dict[str, float] = {}
    while not seen_at or monotonic() - min(seen_at.values()) < watched_s:
        app.read(0.02)
        seen_at = {word: monotonic() for word in WORDS if word in app.text} | seen_at
    os.kill(app.pid, signal.SIGKILL)
    killed_at = monotonic()
    assert app.wait(20) == -signal.SIGKILL
    return seen_at, killed_at
