"""Full, read-only and absent disks, FIFOs, few descriptors, outputs that take nothing: a sentence with the place and
what to do; the chat goes on in memory, and the exit code says when it was not kept."""

from __future__ import annotations

import io
import json
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import app
from app.cli import engine_run, saving, usage
from app.cli import main as cli
from app.storage import chat_import, import_file, unsaved
from app.storage.store import ChatStore
from app.ui.chat_app import ChatApp
from app.ui.widgets.prompt import Prompt
from tests.functional.app import on_played_engine
from tests.functional.app.broken_places import CHAT_ID, UNWRITABLE, USABLE, Place, absent, fifo, full, locked, read_only
from tests.functional.app.conftest import Stage
from tests.functional.app.played_engine import PlayedEngine, say_paris
from tests.functional.app.terminal import CTRL_Q, ENTER, Terminal

COMMANDS = {
    "ask": ["ask", "capital?"],
    "ask -c": ["ask", "-c", "capital?"],
    "ask --json": ["ask", "--json", "capital?"],
    "plain": ["--plain"],
    "rename": ["chats", "rename", CHAT_ID, "new"],
    "list": ["chats", "list"],
    "profile": ["profile", "list"],
    "doctor": ["doctor"],
}


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The temporary folder of the program."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], temporary: Path
) -> Callable[[Path, list[str]], tuple[int, str, str]]:
    """Runs a command with that home; returns the exit code and what it said."""
    monkeypatch.setattr(engine_run, "make_link", on_played_engine.make_link)
    monkeypatch.setattr(saving, "LOCK_WAIT_S", 0.01)
    monkeypatch.setattr("app.cli.commands.chats._LOCK_WAIT_S", 0.01)

    def command(home: Path, argv: list[str]) -> tuple[int, str, str]:
        monkeypatch.setenv("MOE_CHAT_HOME", str(home))
        monkeypatch.setattr("sys.stdin", io.StringIO("capital?\n" if argv == ["--plain"] else ""))
        code = cli.main(argv)
        printed = capsys.readouterr()
        assert "unexpected" not in printed.err
        return code, printed.out, printed.err

    return command


def _cells(places: dict[str, Place], *names: str) -> list[object]:
    return [pytest.param(place, name, id=f"{where}: {name}") for where, place in places.items() for name in names]


@pytest.mark.parametrize(("place", "name"), _cells(UNWRITABLE, *COMMANDS))
def test_where_nothing_can_be_kept_it_is_said(
    place: Place, name: str, run: Callable[[Path, list[str]], tuple[int, str, str]], tmp_path: Path
) -> None:
    with place(tmp_path) as home:
        code, out, err = run(home, COMMANDS[name])
    is_there = place not in (absent, UNWRITABLE["database is a FIFO"])
    if name in ("ask", "ask --json", "plain") or (name == "ask -c" and is_there):
        assert code == usage.EXIT_FAILED
        assert "Paris." in out
        assert "Not saved" in err
        assert place is locked or str(home) in err
    elif name == "list" and place is not UNWRITABLE["database is a FIFO"]:
        assert code == 0
        assert ("before" in out) == is_there
    elif name == "profile" or (name == "doctor" and place is locked):
        assert code == 0
    elif name == "doctor":
        assert code == usage.EXIT_FAILED
        assert str(home.parent) in out
    else:
        assert code == usage.EXIT_FAILED
        assert err.strip()


@pytest.mark.parametrize(("place", "name"), _cells(USABLE, "ask", "list", "doctor"))
def test_what_is_no_file_stops_nothing_else(
    place: Place, name: str, run: Callable[[Path, list[str]], tuple[int, str, str]], tmp_path: Path
) -> None:
    with place(tmp_path) as home:
        code, out, err = run(home, COMMANDS[name])
    assert code == 0
    if place is USABLE["settings are a FIFO"] and name not in ("rename", "list"):
        assert f"{home}/config/settings.toml" in out + err


def test_what_could_not_be_kept_is_in_a_file_that_can_be_imported(
    run: Callable[[Path, list[str]], tuple[int, str, str]], tmp_path: Path, temporary: Path
) -> None:
    with read_only(tmp_path) as home:
        run(home, ["ask", "-c", "capital?"])
        (written,) = temporary.glob("moe-chat-unsaved-*.json")
        store = ChatStore(tmp_path / "other" / "chats.db")
        chat_import.import_chats(store, import_file.read_file(written).chats)
    assert [turn.text for turn in store.turns(store.chats()[0].chat_id)] == ["before", "capital?", "It is Paris."]
    store.close()


def test_a_database_that_becomes_free_in_time_has_the_answer(
    run: Callable[[Path, list[str]], tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "LOCK_WAIT_S", 60.0)
    home = tmp_path / "home"
    ChatStore(home / "data" / "chats.db").open()
    other = sqlite3.connect(home / "data" / "chats.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    tell = engine_run.HeadlessScreen.note

    def note(screen: engine_run.HeadlessScreen, text: str) -> None:
        tell(screen, text)
        if text.startswith("Waiting"):
            threading.Timer(0.01, other.rollback).start()

    monkeypatch.setattr(engine_run.HeadlessScreen, "note", note)
    code, _, err = run(home, ["ask", "capital?"])
    other.close()
    assert code == 0
    assert "everything is saved" in err
    store = ChatStore(home / "data" / "chats.db")
    assert [turn.text for turn in store.turns(store.chats()[0].chat_id)] == ["capital?", "It is Paris."]
    store.close()


def test_json_says_whether_the_question_was_kept(
    run: Callable[[Path, list[str]], tuple[int, str, str]], tmp_path: Path
) -> None:
    with absent(tmp_path) as home:
        _, out, _ = run(home, ["ask", "--json", "capital?"])
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0]["event"] == "chat"
    assert not events[0]["is_saved"]
    assert events[-1]["kind"] == "not_saved"


# The app


def _long(place: Place) -> object:
    return pytest.param(place, marks=pytest.mark.long)


@pytest.mark.parametrize("place", [full, fifo("data/prompts.jsonl"), *map(_long, UNWRITABLE.values())])
async def test_the_app_goes_on_in_memory(
    place: Place, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place(tmp_path) as home:
        monkeypatch.setenv("MOE_CHAT_HOME", str(home))
        stage = Stage(tmp_path, _Answering)
        stage.app = ChatApp(stage.bridge, ChatStore(home / "data" / "chats.db"), stage.settings)
        async with stage.app.run_test(size=(120, 40), notifications=True) as stage.pilot:
            await stage.open_chat()
            await stage.ask("capital?")
            await stage.see("It is Paris.")
            await stage.see("memory" if place in UNWRITABLE.values() else "Type a message")
            await stage.ask("again?")
            await stage.until(lambda: len(stage.engine.submitted()) == 2)
            assert stage.chat.query_one(Prompt).text == ""
        failure = unsaved.finish(stage.app.recorder, 0.0)
        assert (failure is not None) == (place in UNWRITABLE.values())
        assert failure is None or "capital?" in next(temporary.glob("*.json")).read_text()


class _Answering(PlayedEngine):
    def __init__(self) -> None:
        super().__init__(say_paris)


def test_leaving_the_app_says_what_is_not_kept(tmp_path: Path) -> None:
    with UNWRITABLE["database is a FIFO"](tmp_path) as home:
        (home / "config").mkdir()
        (home / "config" / "settings.toml").touch()
        terminal = Terminal(_ON_PLAYED_ENGINE, {**_environment(home), "TERM": "xterm-256color"})
        try:
            terminal.see("is ready")
            terminal.send("capital?")
            terminal.see("capital?")
            terminal.send(ENTER)
            terminal.see("Paris", "memory")
            terminal.send(CTRL_Q)
            assert terminal.wait(20) == usage.EXIT_FAILED
            terminal.see("Not saved")
        finally:
            terminal.close()


# What surrounds a process


_ON_PLAYED_ENGINE = [sys.executable, "-m", "tests.functional.app.on_played_engine"]


def _environment(home: Path) -> dict[str, str]:
    here = {"PYTHONPATH": str(Path(app.__path__[0]).parent), "TMPDIR": str(_existing(home))}
    return {**os.environ, **here, "MOE_CHAT_HOME": str(home)}


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    return next(folder for folder in path.parents if folder.is_dir())


def _process(argv: list[str], home: Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    command = [*_ON_PLAYED_ENGINE, *argv]
    return subprocess.run(command, env=_environment(home), timeout=60, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("argv", [["ask", "capital?"], ["--version"]])
def test_an_output_that_is_full_is_a_sentence(argv: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "wb") as nowhere:
        ended = _process(argv, tmp_path / "home", stdout=nowhere)
    assert ended.returncode == usage.EXIT_FAILED
    assert b"Standard output cannot be written: No space left on device." in ended.stderr
    assert b"unexpected" not in ended.stderr


def test_remarks_that_nobody_can_be_told_stop_nothing(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as nowhere:
        ended = _process(["ask", "capital?"], tmp_path / "home", stderr=nowhere)
    assert (ended.returncode, ended.stdout) == (0, b"It is Paris.\n")


@pytest.mark.parametrize("argv", [["ask", "capital?"], ["--plain"], []])
def test_streams_that_are_closed(argv: list[str], tmp_path: Path) -> None:
    ended = _process(argv, tmp_path / "home", stdin=None, preexec_fn=lambda: os.close(0))
    assert b"unexpected" not in ended.stderr
    assert ended.returncode == (usage.EXIT_USAGE if argv == [] else 0)


@pytest.mark.parametrize("limit", [6, 8])
def test_few_descriptors_are_a_sentence(limit: int, tmp_path: Path) -> None:
    ended = _process(
        ["ask", "capital?"],
        tmp_path / "home",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert b"unexpected" not in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.returncode == 0 or b"ulimit -n" in ended.stderr
