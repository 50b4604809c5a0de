"""The app with a real engine in a real terminal: whatever happens to one of them, nothing hangs and nothing is left."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import psutil
import pytest

from app.storage.paths import AppPaths
from app.storage.store import ChatStore
from tests.architectures.tiny import save_endless_checkpoint
from tests.functional.app.terminal import CTRL_Q, CTRL_Z, ENTER, ESCAPE, F8, Terminal
from tests.functional.engine.running_engine import is_gone
from tests.patience import GONE_S

EXIT_CODES = {"ctrl+q": 0, "SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
SLOW_LINK = "200kB/s"
"""A tiny expert takes an eighth of a second."""
SLOW_START = "transformers"
"""The back end that imports the model library first: loading lasts."""
LONG_QUESTION = " ".join(f"w{3 + number % 120}" for number in range(200))

Open = Callable[..., Terminal]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that never ends an answer by itself."""
    return save_endless_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which the welcome is over."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.toml").touch()
    return tmp_path


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "MOE_CHAT_HOME": str(home), "TERM": "xterm-256color"}


@pytest.fixture
def open_app(tiny: Path, environment: dict[str, str]) -> Iterator[Open]:
    """Opens the app on the tiny model; with `shell`, as a job of an interactive shell, `started_by` another program."""
    opened: list[Terminal] = []

    def run(*, shell: bool = False, started_by: str = "", backend: str = "auto") -> Terminal:
        command = [sys.executable, "-m", "app.cli", "--model", str(tiny), "--residency", "50%", "--threads", "1"]
        command += ["--link", SLOW_LINK, "--backend", backend]
        opened.append(Terminal(["bash", "--norc", "-i"] if shell else command, environment))
        if shell:
            opened[-1].send(f"{started_by} {shlex.quote(' '.join(command)) if started_by else ' '.join(command)}\n")
        return opened[-1]

    yield run
    for terminal in opened:
        terminal.close()


def load(app: Terminal) -> None:
    """To where the model is being loaded."""
    app.see("What is this chat about?")


def prefill(app: Terminal) -> None:
    """To where a prompt is being read."""
    chat(app)
    app.send(LONG_QUESTION + ENTER)
    app.see("reading the prompt")


def decode(app: Terminal) -> None:
    """To where an answer is being written."""
    chat(app)
    app.send("w5 w9" + ENTER)
    app.see("tok/s  ·  esc stops")


def chat(app: Terminal) -> None:
    app.see("is ready")
    app.send(ENTER)
    app.see("Type a message")


def leave(app: Terminal, way: str) -> None:
    if way == "ctrl+q":
        app.send(CTRL_Q)
    else:
        os.kill(app.pid, signal.Signals[way])


def _long(stage: Callable[[Terminal], None], way: str) -> object:
    return pytest.param(stage, way, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("stage", "way"),
    [
        (load, "ctrl+q"),
        (load, "SIGINT"),
        _long(load, "SIGTERM"),
        (load, "SIGHUP"),
        (prefill, "ctrl+q"),
        (decode, "SIGINT"),
        _long(prefill, "SIGINT"),
        _long(prefill, "SIGTERM"),
        _long(decode, "ctrl+q"),
        _long(decode, "SIGTERM"),
        _long(decode, "SIGHUP"),
    ],
)
def test_it_is_gone_within_two_seconds_and_leaves_no_process(
    open_app: Open, stage: Callable[[Terminal], None], way: str
) -> None:
    app = open_app(backend=SLOW_START if stage is load else "auto")
    stage(app)
    children = app.children()
    assert children
    begun = monotonic()
    leave(app, way)
    assert app.wait(GONE_S) == EXIT_CODES[way]
    gone, left = psutil.wait_procs(children, timeout=max(0.0, GONE_S - (monotonic() - begun)))
    assert left == []
    assert len(gone) == len(children)


def test_a_killed_engine_is_told_and_started_again(open_app: Open) -> None:
    app = open_app()
    decode(app)
    (engine,) = app.children()
    engine.kill()
    app.see("killed by SIGKILL", "f8 starts the engine again")
    app.send(F8)
    app.see("starting the engine")
    app.until(lambda: "starting the engine" not in app.text and "esc stops" not in app.text, "it was not loaded again")
    app.send("w7" + ENTER)
    app.see("tok/s  ·  esc stops")


def test_a_killed_app_takes_its_engine_along_and_keeps_the_chat(open_app: Open, environment: dict[str, str]) -> None:
    app = open_app()
    decode(app)
    store = ChatStore(AppPaths.from_environment(environment).chats_db)

    def texts() -> list[str]:
        return [turn.text for chat in store.chats() for turn in store.turns(chat.chat_id)]

    app.until(lambda: len(texts()) == 2, "the partial answer was not stored")
    children = app.children()
    os.kill(app.pid, signal.SIGKILL)
    assert app.wait(GONE_S) == -signal.SIGKILL
    app.until(lambda: all(is_gone(child.pid) for child in children), "the engine outlived the app", GONE_S)
    question, answer = texts()
    assert question == "w5 w9"
    assert answer
    store.close()


@pytest.mark.parametrize("started_by", ["", "sh -c 'eval \"$0\"; exit $?'"])
def test_suspended_and_resumed(open_app: Open, started_by: str) -> None:
    shell = open_app(shell=True, started_by=started_by)
    shell.see("is ready")
    shell.send(ENTER)
    shell.see("Type a message")
    shell.send(CTRL_Z)
    shell.see("Stopped")
    shell.send("clear\n")
    shell.until(lambda: "Type a message" not in shell.text, "the shell is not back")
    shell.send("fg\n")
    shell.see("Type a message")
    shell.send("w5 w9" + ENTER)
    shell.see("tok/s  ·  esc stops")
    shell.send(ESCAPE)
    shell.until(lambda: "esc stops" not in shell.text, "it was not stopped")
    shell.send(CTRL_Q)
    shell.until(lambda: not shell.children(), "it never ended")
    shell.send("clear; echo left with $?\n")
    shell.see("left with 0")


def test_a_long_stop_in_mid_answer_breaks_nothing(open_app: Open) -> None:
    """As when a lid is closed: time goes on, and the app has not."""
    app = open_app()
    decode(app)
    processes = [psutil.Process(app.pid), *app.children()]
    for process in processes:
        process.suspend()
    app.read(3)
    for process in processes:
        process.resume()
    app.resize(90, 30)
    app.see("tok/s  ·  esc stops")
    app.send(ESCAPE)
    app.until(lambda: "esc stops" not in app.text, "it was not stopped")
    app.send("w7" + ENTER)
    app.see("tok/s  ·  esc stops")


def test_a_load_is_stopped_and_taken_up_again(open_app: Open) -> None:
    app = open_app(backend=SLOW_START)
    load(app)
    app.send(ESCAPE)
    app.see("f8 loads the model again")
    app.send(F8)
    app.see("is ready")
