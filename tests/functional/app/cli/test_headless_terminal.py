"""No terminal is ever commanded, and no byte stops a command: everything without a screen, with hostile text in every
field that it prints."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import app
from app.cli import engine_run
from app.cli import main as cli
from app.storage.paths import AppPaths
from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from engine.api import Command, Load, Submit
from engine.events import Failed, Notice, TaskEnded, TaskProgress, TextDelta, TurnEnded
from tests.functional.app.fake_engine import FakeEngine, stats
from tests.functional.app.played_engine import Play, PlayedEngine, say_paris
from tests.unit.engine.commands.test_trace_replay import make_trace

EVIL = "a\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\x85\u202e\u2066\u061c\x00\x7f\x08\rz"
"""A screen cleared, the clipboard written, C1 codes, text directions, NUL, delete, backspace, carriage return."""


@pytest.fixture
def evil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home whose folder, chats and hub cache are hostile."""
    home = tmp_path / EVIL.replace("\x00", "").replace("/", "")
    monkeypatch.setenv("MOE_CHAT_HOME", str(home))
    monkeypatch.setenv("MOE_CHAT_CACHE", str(home / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub" / f"models--owner--{EVIL.replace(chr(0), '')}" / "blobs").mkdir(parents=True)
    store = ChatStore(AppPaths.from_environment().chats_db)
    for chat_id, title in (("c0ffee", EVIL), ("decade", "")):
        chat = ChatRecord(EVIL, EVIL, EVIL, chat_id=chat_id, title=title)
        question = TurnRecord(chat_id, 0, USER, f"apple {EVIL}", EVIL, EVIL, created_at=EVIL)
        answer = TurnRecord(chat_id, 1, ASSISTANT, EVIL, mode_label=EVIL, markers=[EVIL], thinking=EVIL)
        answer.stats = {"reason": EVIL, "counters": {EVIL: EVIL}, "before": {"label": EVIL}}
        store.save_whole(chat, [question, answer])
    store.close()
    return home


def _hostile_characters(text: str) -> set[str]:
    return {character for character in set(EVIL) & set(text) if not (character.isascii() and character.isprintable())}


def _check(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr()
    assert _hostile_characters(printed.out + printed.err) == set()
    return printed.out + printed.err


@pytest.mark.parametrize(
    "argv",
    [
        ["chats", "list"],
        ["chats", "list", "--all"],
        ["chats", "list", "--json"],
        ["chats", "show", "c0ffee"],
        ["chats", "show", "c0ffee", "--json"],
        ["chats", "search", "apple"],
        ["chats", "search", "apple", "--json"],
        ["chats", "search", EVIL],
        ["chats", "export", "--all"],
        ["chats", "export", "--all", "--json"],
        ["chats", "export", "c0ffee", "-o", EVIL.replace("\x00", "")],
        ["chats", "export", "c0ffee", "-o", f"no/{EVIL}"],
        ["chats", "import", EVIL],
        ["chats", "show", EVIL],
        ["chats", "rename", "c0ffee", EVIL],
        ["chats", "delete", "c0ffee", "--yes"],
        ["chats", EVIL],
        [EVIL],
        ["ask", f"--{EVIL}", "hello"],
        ["ask", "--thinking", EVIL, "hello"],
        ["ask", "--domain", EVIL, "hello"],
        ["ask", "--chat", EVIL, "hello"],
        ["paths"],
        ["paths", "--json"],
        ["clean", "--list"],
        ["clean", "--list", "--json"],
        ["clean", EVIL],
        ["trace", "replay", EVIL],
        ["trace", "record", "--out", f"no/{EVIL}"],
        ["profile", "build", "--prompts", EVIL, "--name", EVIL],
        ["ask", "--memory", EVIL, "hello"],
        ["ask", "--temperature", EVIL, "hello"],
    ],
)
def test_no_command_passes_on_what_a_terminal_obeys(
    evil: Path, argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with contextlib.suppress(SystemExit):  # argparse leaves after its complaint
        cli.main(argv)
    _check(capsys)


def test_an_exported_markdown_can_be_printed_by_a_terminal(evil: Path, tmp_path: Path) -> None:
    assert cli.main(["chats", "export", "c0ffee", "-o", str(tmp_path / "chat.md")]) == 0
    assert _hostile_characters((tmp_path / "chat.md").read_text()) == set()
    assert cli.main(["chats", "export", "c0ffee", "--json", "-o", str(tmp_path / "chat.json")]) == 0
    written = (tmp_path / "chat.json").read_text()
    assert _hostile_characters(written) == set()
    assert json.loads(written)["chats"][0]["domain"] == EVIL


def _hostile_engine(engine: FakeEngine, command: Command) -> None:
    if isinstance(command, Load):
        engine.tell(Notice(EVIL, EVIL))
    elif isinstance(command, Submit):
        delta = TextDelta(command.request_id, EVIL, 1)
        engine.tell(delta, TurnEnded(command.request_id, "stop", stats(1), EVIL, EVIL))
    else:
        ended = TaskEnded(1, True, {"checks": [dict.fromkeys(("name", "verdict", "found", "advice"), EVIL)]}, (EVIL,))
        engine.tell(TaskProgress(1, EVIL, 1, 2), ended)


def _failing_engine(engine: FakeEngine, command: Command) -> None:
    engine.tell(Failed(None, EVIL, EVIL, EVIL, is_fatal=True))


@pytest.mark.parametrize("script", [_hostile_engine, _failing_engine])
@pytest.mark.parametrize(
    "argv",
    [
        ["ask", "--show-thinking", "--stats", "hello"],
        ["ask", "--json", "hello"],
        ["verify"],
        ["verify", "--json"],
        ["bench", "--json"],
        ["plan"],
        ["doctor"],
        ["doctor", "--json"],
        ["profile", "list"],
        ["profile", "show", EVIL],
        ["trace", "record", "--out", "x.npz"],
        ["--plain"],
    ],
)
def test_nothing_the_engine_says_commands_a_terminal(
    evil: Path,
    argv: list[str],
    script: Play,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    engine = PlayedEngine(script)
    monkeypatch.setattr(engine_run, "make_link", lambda paths: engine)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(f"hello\n/chats\n/open last\n/{EVIL}\n/system {EVIL}\n/export {EVIL}\n")
    )
    cli.main(argv)
    assert "[2J" in _check(capsys)


def test_trace_metadata_commands_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    path = tmp_path / "trace.npz"
    replace(make_trace(), domain=EVIL).save(path)
    for kind in ([], ["--json"]):
        cli.main(["trace", "replay", str(path), "--slots", "2", *kind])
        _check(capsys)


@pytest.mark.parametrize("argv", [["chats", "list"], ["chats", "search", "apple"], ["chats", "export", "--all"]])
def test_a_real_terminal_gets_no_codes_but_our_own(evil: Path, argv: list[str]) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "app.cli", *argv]
    environment = {**os.environ, "PYTHONPATH": str(Path(app.__path__[0]).parent), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        printed = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(master, 65536):
                printed += piece
        assert process.wait(60) == 0
    os.close(master)
    text = re.sub(r"\x1b\[[01]m|\r\n", "", printed.decode())
    assert "[2J" in text
    assert _hostile_characters(text) == set()


# Bytes and characters that are not UTF-8


def _run(argv: list[bytes], home: Path, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    variables = {**os.environ, "MOE_CHAT_HOME": str(home), "PYTHONPATH": str(Path(app.__path__[0]).parent)}
    variables |= {"LC_ALL": "C.UTF-8", **environment}
    command = [os.fsencode(sys.executable), b"-m", b"app.cli", *argv]
    return subprocess.run(command, input=stdin, capture_output=True, env=variables, timeout=60, check=False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_output_that_is_not_utf_8_gets_what_it_can_show(tmp_path: Path, encoding: str) -> None:
    store = ChatStore(tmp_path / "data" / "chats.db")
    chat = ChatRecord("general", "", "demo", chat_id="c0ffee", title="Grüße 日本 🙂")
    store.save_whole(chat, [TurnRecord("c0ffee", 0, USER, "Grüße 日本 🙂")])
    store.close()
    ended = _run([b"chats", b"list"], tmp_path, PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"c0ffee  Gr" in ended.stdout
    for kind in ([b"list", b"--json"], [b"export", b"--all", b"--json"]):
        ended = _run([b"chats", *kind], tmp_path, PYTHONIOENCODING=encoding)
        assert ended.returncode == 0
        assert "Grüße 日本 🙂" in str(json.loads(ended.stdout.decode(encoding)))


def test_arguments_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "data" / "chats.db")
    store.save_whole(ChatRecord("general", "", "demo", chat_id="c0ffee"), [TurnRecord("c0ffee", 0, USER, "hi")])
    store.close()
    ended = _run([b"chats", b"rename", b"c0ffee", b"Gr\xfc\xdfe"], tmp_path)
    assert ended.returncode == 0
    assert "Gr\ufffd\ufffde" in ended.stdout.decode()
    ended = _run([b"chats", b"show", b"\xff\xfe"], tmp_path)
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "argv",
    [["ask", "caf\udce9 \ud800"], ["ask", "-s", "\udcff", "caf\udce9"], ["ask", "--stop", "\udcff", "caf\udce9"]],
)
def test_a_question_with_lone_surrogates_is_asked(
    argv: list[str], play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            engine.tell(TurnEnded(command.request_id, "stop", stats(1), "ok", ""))

    engine = play(answer)
    assert cli.main(argv) == 0
    (submit,) = engine.submitted()
    for message in submit.messages:
        message.content.encode()
    assert submit.messages[-1].content.startswith("caf\ufffd")
    "".join(submit.sampling.stop).encode()


def test_a_system_prompt_of_the_environment_is_asked_with(
    play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOE_CHAT_SYSTEM_PROMPT", "caf\udce9")
    engine = play(say_paris)
    assert cli.main(["ask", "capital?"]) == 0
    assert engine.submitted()[0].messages[0].content == "caf\ufffd"


def test_a_file_of_chats_with_bytes_that_are_no_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path / "home"))
    store = ChatStore(AppPaths.from_environment().chats_db)
    store.save_whole(ChatRecord("general", "", "demo", chat_id="c0ffee"), [TurnRecord("c0ffee", 0, USER, "cafe")])
    store.close()
    assert cli.main(["chats", "export", "c0ffee", "--json", "-o", str(tmp_path / "chat.json")]) == 0
    written = (tmp_path / "chat.json").read_bytes().replace(b"cafe", b"caf\xe9").replace(b"c0ffee", b"decade")
    (tmp_path / "chat.json").write_bytes(b"\xef\xbb\xbf" + written)
    assert cli.main(["chats", "import", str(tmp_path / "chat.json")]) == 0
    store = ChatStore(AppPaths.from_environment().chats_db)
    assert store.turns("decade")[0].text == "caf\ufffd"
    store.close()


def test_lines_in_latin_1_are_asked_with_what_can_be_read(
    play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = play(_hostile_engine)
    piped = io.TextIOWrapper(io.BytesIO(b"na\xefve?\nand then?\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", piped)
    assert cli.main(["--plain"]) == 0
    asked = [submit.messages[-1].content for submit in engine.submitted()]
    assert asked == ["na\ufffdve?", "and then?"]


# One place


_PRINTS = Path("cli/output/terminal_text.py")


def _forgotten(source: str) -> Iterator[int]:
    """The lines that write to a standard stream by themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" or called in {f"sys.{name}.{do}" for name in _STREAMS for do in _WRITES}:
                yield node.lineno


_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__", "stdout.buffer", "stderr.buffer")
_WRITES = ("write", "writelines")


def test_text_leaves_in_one_place_only() -> None:
    root = Path(app.__path__[0])
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in root.rglob("*.py")
        if path.relative_to(root) != _PRINTS
        for line in _forgotten(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "use app.cli.output.terminal_text.say, tell or say_json"
    assert list(_forgotten("print('x')\nsys.stderr.write(x)\nsys.stdout.buffer.write(x)")) == [1, 2, 3]
