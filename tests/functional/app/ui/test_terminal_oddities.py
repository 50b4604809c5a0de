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
    """Opens the app on an engine that writes slowly, in a home of its own; more variables may be given."""
    opened: list[Terminal] = []

    def run(home: Path = tmp_path, **variables: str) -> Terminal:
        (home / "config").mkdir(parents=True)
        (home / "config" / "settings.toml").touch()
        environment = {**os.environ, "MOE_CHAT_HOME": str(home), "TERM": "xterm-256color", "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-m", "tests.functional.app.on_played_engine"]
        opened.append(Terminal(command, environment | variables))
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
SLACK_S = 0.5
"""A beat of the app, and what a busy machine takes to draw it."""


_GROUPS = [range(first, min(first + 3, 50)) for first in range(0, 50, 3)]
"""Fifty kills, three at a time."""


@pytest.mark.parametrize("numbers", [_GROUPS[0], *(pytest.param(one, marks=pytest.mark.long) for one in _GROUPS[1:])])
def test_a_killed_app_loses_nothing_older_than_a_second(open_app: Open, tmp_path: Path, numbers: range) -> None:
    watched = {number: Watched(open_app(tmp_path / str(number))) for number in numbers}
    for one in watched.values():
        one.app.see("is ready")
    for one in watched.values():
        one.app.send("question")
        one.app.see("question")
        one.app.send(ENTER)
    while any(one.killed_at is None for one in watched.values()):
        for number, one in watched.items():
            one.watch(LOST_S + SLACK_S + (1 + number % 12) / 10)
    for number, one in watched.items():
        store = ChatStore(tmp_path / str(number) / "data" / "chats.db")
        (chat,) = store.chats()
        question, answer = store.turns(chat.chat_id)
        store.close()
        assert question.text == "question"
        assert one.old_words(), "the answer was not watched for long enough"
        assert [word for word in one.old_words() if word not in answer.text] == []
        assert answer.state == PARTIAL


class Watched:
    """An app whose answer is watched until it is killed."""

    def __init__(self, app: Terminal) -> None:
        self.app = app
        self.killed_at: float | None = None
        self._seen_at: dict[str, float] = {}

    def watch(self, watched_s: float) -> None:
        """Look at it once; kill it when its answer has been seen for that long."""
        if self.killed_at is not None:
            return
        self.app.read(0.01)
        self._seen_at = {word: monotonic() for word in WORDS if word in self.app.text} | self._seen_at
        if self._seen_at and monotonic() - min(self._seen_at.values()) >= watched_s:
            os.kill(self.app.pid, signal.SIGKILL)
            self.killed_at = monotonic()
            assert self.app.wait(20) == -signal.SIGKILL

    def old_words(self) -> list[str]:
        """The words that had been on the screen for more than a second."""
        assert self.killed_at is not None
        return [word for word, at in self._seen_at.items() if at < self.killed_at - LOST_S - SLACK_S]
