"""Files, presets, blocks of code and chats of other programs without a screen."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.chat.answer_clock import AnswerClock
from app.cli import main as cli
from app.storage.paths import AppPaths
from app.storage.records import ChatRecord, TurnRecord
from app.storage.store import ChatStore
from engine.api import Command, Load, SetMode, Submit
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.played_engine import Play, say_paris

_CODE = 'Look:\n\n```python\nprint("Paris")\n```\n'
_TERSE = '[chat]\nsystem_prompt = "Be terse."\n[sampling]\ntemperature = 0.2\n[offload]\nmode = "approx"\n'


def _write_code(engine: FakeEngine, command: Command) -> None:
    if isinstance(command, Submit):
        engine.end_answer(command.request_id, _CODE, 9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("remember the milk")
    presets = AppPaths.from_environment().presets_dir
    presets.mkdir(parents=True)
    (presets / "terse.toml").write_text(_TERSE)
    return tmp_path


def _newest() -> tuple[ChatRecord, list[TurnRecord]]:
    store = ChatStore(AppPaths.from_environment().chats_db)
    chat_id = store.summaries()[0].chat_id
    chat, turns = store.chat(chat_id), store.turns(chat_id)
    store.close()
    assert chat is not None
    return chat, turns


def test_ask_sends_the_file_that_it_names_and_not_one_that_is_piped(
    folder: Path, play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine = play(say_paris)
    assert cli.main(["ask", "what is in", "@notes.txt?"]) == 0
    assert engine.submitted()[0].messages[-1].content == (
        "notes.txt:\n```txt\nremember the milk\n```\n\nwhat is in @notes.txt?"
    )
    assert _newest()[1][0].attachments[0].text == "remember the milk"
    engine = play(say_paris)
    assert cli.main(["ask", "what is", f"@{folder}"]) == 1
    assert not engine.submitted()
    assert "is a folder" in capsys.readouterr().err
    assert cli.main(["chats", "show", "last"]) == 0
    assert "<summary>file: notes.txt</summary>" in capsys.readouterr().out


def test_ask_with_a_preset_and_what_is_typed_over_it(folder: Path, play: Callable[[Play], FakeEngine]) -> None:
    engine = play(say_paris)
    assert cli.main(["ask", "-p", "terse", "capital?"]) == 0
    (load,) = [command for command in engine.sent if isinstance(command, Load)]
    (submit,) = engine.submitted()
    assert load.config.mode == "approx"
    assert submit.sampling.temperature == 0.2
    assert submit.messages[0].content == "Be terse."
    chat = _newest()[0]
    assert chat.preset is not None
    assert chat.preset.name == "terse"
    engine = play(say_paris)
    assert cli.main(["ask", "-c", "and more"]) == 0  # the chat has it
    assert engine.submitted()[0].sampling.temperature == 0.2
    engine = play(say_paris)
    typed = ["--temperature", "1", "-s", "Be kind.", "--mode", "exact"]
    assert cli.main(["ask", "--preset", "terse", *typed, "capital?"]) == 0
    (load,) = [command for command in engine.sent if isinstance(command, Load)]
    assert load.config.mode == "exact"
    assert engine.submitted()[0].sampling.temperature == 1
    assert engine.submitted()[0].messages[0].content == "Be kind."


def test_a_preset_that_is_not_there_or_wrong_is_told(
    folder: Path, play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    play(say_paris)
    assert cli.main(["ask", "-p", "tears", "capital?"]) == 1
    assert "Did you mean terse?" in capsys.readouterr().err
    (folder / "data" / "presets" / "bad.toml").write_text("[sampling]\nheat = 1\n")
    assert cli.main(["ask", "-p", "bad", "capital?"]) == 1
    assert "bad.toml, line 2" in capsys.readouterr().err


def test_the_plain_chat_has_presets_files_and_blocks_of_code(
    folder: Path,
    play: Callable[[Play], FakeEngine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = play(_write_code)
    lines = (
        "/preset", "/preset terse", "see @notes.txt", "/save code.py", "/save code.py", "/save 2 x",
        "/preset save mine", "/preset delete terse", "@data", "/new", "again",
    )  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    assert cli.main(["--plain"]) == 0
    first, second = engine.submitted()
    assert first.sampling.temperature == 0.2
    assert "remember the milk" in first.messages[-1].content
    assert SetMode("approx") in engine.sent
    assert second.sampling.temperature is None
    assert (folder / "code.py").read_text() == 'print("Paris")\n'
    told = capsys.readouterr()
    assert "temperature 0.2" in told.out
    for said in ("is there already", "no block '2'", "is a folder"):
        assert said in told.err
    presets = folder / "data" / "presets"
    assert sorted(path.name for path in presets.iterdir()) == ["mine.toml", "terse.deleted"]


def test_chats_of_another_program_are_imported_once_and_what_is_left_out_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {
        "q": {"parentId": None, "role": "user", "content": "hi"},
        "a": {"parentId": "q", "role": "assistant", "content": "ho", "files": [{}]},
    }
    chat = {"title": "Web", "chat": {"history": {"messages": said, "currentId": "a"}}}
    (folder / "web.json").write_text(json.dumps([chat]))
    assert cli.main(["chats", "import", "web.json"]) == 0
    told = capsys.readouterr()
    assert told.out == "1 chat imported\n"
    assert "attached files and images (1)" in told.err
    assert cli.main(["chats", "import", "web.json"]) == 0
    assert capsys.readouterr().out == "1 chat already there\n"
    assert [turn.text for turn in _newest()[1]] == ["hi", "ho"]


@pytest.mark.parametrize(
    ("is_terminal", "after_s", "rings"), [(True, "30", True), (True, "60", False), (False, "30", False)]
)
def test_a_long_answer_rings_on_a_terminal(
    play: Callable[[Play], FakeEngine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
    after_s: str,
    rings: bool,
) -> None:
    times = iter((0.0, 41.0))
    monkeypatch.setattr("app.cli.answer.AnswerClock", lambda: AnswerClock(lambda: next(times)))
    monkeypatch.setenv("MOE_CHAT_NOTIFY_AFTER", after_s)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    play(say_paris)
    assert cli.main(["ask", "--notify", "bell", "capital?"]) == 0
    assert ("\x07" in capsys.readouterr().err) == rings
