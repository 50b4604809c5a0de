"""`moe-chat ask`: what is kept, going on with a chat, thinking, errors in mid-answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from app.cli import main as cli
from app.cli import usage
from app.process.instance import InstanceLock
from app.storage.paths import AppPaths
from app.storage.recorder import Recorder
from app.storage.records import FAILED
from app.storage.store import ChatStore
from engine.api import Command, Submit
from engine.errors import EngineDiedError
from engine.events import Failed, LoadProgress, TextDelta, TurnEnded
from tests.functional.app.fake_engine import READY, FakeEngine, stats
from tests.functional.app.played_engine import Play, say_paris


def _kept() -> list[tuple[str, list[str]]]:
    """The title and the texts of every chat, the newest first."""
    store = ChatStore(AppPaths.from_environment().chats_db)
    found = [(chat.title, [turn.text for turn in store.turns(chat.chat_id)]) for chat in store.summaries()]
    store.close()
    return found


def test_a_question_and_its_answer_are_kept(play: Callable[[Play], FakeEngine]) -> None:
    play(say_paris)
    assert cli.main(["ask", "capital?"]) == 0
    assert _kept() == [("capital?", ["capital?", "It is Paris."])]
    store = ChatStore(AppPaths.from_environment().chats_db)
    answer = store.turns(store.summaries()[0].chat_id)[1]
    store.close()
    assert answer.stats is not None
    assert (answer.stats["domain"], answer.stats["model"]) == ("general", READY.model_name)


@pytest.mark.parametrize("command", [["ask", "capital?"], ["--plain"]])
def test_nothing_can_be_freed_while_chats_are_written(
    play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    tries: list[bool] = []

    def flush(recorder: Recorder) -> None:
        cleaner = InstanceLock(AppPaths.from_environment().instance_lock)
        tries.append(cleaner.acquire_alone())
        cleaner.release()

    play(say_paris)
    monkeypatch.setattr(Recorder, "flush", flush)
    monkeypatch.setattr("sys.stdin", StringIO("capital?\n"))
    assert cli.main(command) == 0
    assert len(tries) > 2
    assert not any(tries)


def test_no_save_keeps_nothing(play: Callable[[Play], FakeEngine], tmp_path: Path) -> None:
    play(say_paris)
    assert cli.main(["ask", "--no-save", "capital?"]) == 0
    assert not AppPaths.from_environment().chats_db.exists()


def test_the_question_is_kept_before_the_model_is_loaded(play: Callable[[Play], FakeEngine]) -> None:
    engine = play(say_paris)
    seen: list[object] = []
    engine.start = lambda: seen.extend(_kept())  # type: ignore[method-assign]
    cli.main(["ask", "capital?"])
    assert seen == [("capital?", ["capital?"])]


@pytest.mark.parametrize("how", [["-c"], ["--chat", "last"]])
def test_going_on_with_a_chat(how: list[str], play: Callable[[Play], FakeEngine]) -> None:
    play(say_paris)
    cli.main(["ask", "--domain", "maths", "capital?"])
    engine = play(say_paris)
    assert cli.main(["ask", *how, "and again?"]) == 0
    roles = [message.role for message in engine.submitted()[0].messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert _kept() == [("capital?", ["capital?", "It is Paris.", "and again?", "It is Paris."])]


def test_going_on_without_saving_reads_and_does_not_write(play: Callable[[Play], FakeEngine]) -> None:
    play(say_paris)
    cli.main(["ask", "capital?"])
    engine = play(say_paris)
    assert cli.main(["ask", "-c", "--no-save", "and again?"]) == 0
    assert len(engine.submitted()[0].messages) == 3
    assert _kept() == [("capital?", ["capital?", "It is Paris."])]


def test_there_must_be_a_chat_to_go_on_with(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    play(say_paris)
    assert cli.main(["ask", "-c", "and again?"]) == usage.EXIT_FAILED
    assert "No chats yet" in capsys.readouterr().err
    assert cli.main(["ask", "-c", "--domain", "maths", "hi"]) == usage.EXIT_USAGE


def _think(engine: FakeEngine, command: Command) -> None:
    if isinstance(command, Submit):
        request_id = command.request_id
        engine.tell(TextDelta(request_id, "hm \x1b[2J", 1, is_thinking=True), TextDelta(request_id, "391", 2))
        engine.tell(TurnEnded(request_id, "stop", replace(stats(2), thinking_tok=1), "391", "hm \x1b[2J"))


def test_thinking_is_told_apart(play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]) -> None:
    play(_think)
    assert cli.main(["ask", "--json", "17 × 23"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {event["event"]: event["text"] for event in events if "text" in event}
    assert told == {"thinking": "hm \x1b[2J", "text": "391", "end": "391"}
    play(_think)
    assert cli.main(["ask", "--show-thinking", "17 × 23"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "391\n"
    assert "hm ␛[2J\n" in printed.err
    store = ChatStore(AppPaths.from_environment().chats_db)
    assert store.turns(store.summaries()[0].chat_id)[1].thinking == "hm \x1b[2J"
    store.close()


def test_thinking_is_chosen_where_the_model_has_a_choice(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(say_paris)
    assert cli.main(["ask", "--thinking", "off", "hi"]) == usage.EXIT_USAGE
    assert "no thinking choice 'off'" in capsys.readouterr().err
    monkeypatch.setattr("tests.functional.app.fake_engine.READY", replace(READY, thinking_choices=("off", "on")))
    engine = play(say_paris)
    assert cli.main(["ask", "--thinking", "off", "hi"]) == 0
    assert engine.submitted()[0].thinking == "off"


def test_an_error_in_mid_answer_keeps_what_there_is(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            engine.tell(TextDelta(command.request_id, "Half an ans", 3))
            engine.tell(Failed(None, "The engine stopped", "It was killed.", "Start it again.", is_fatal=True))

    play(break_down)
    assert cli.main(["ask", "--json", "hi"]) == usage.EXIT_FAILED
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["event"] == "error"
    assert printed.err.endswith("The engine stopped: It was killed.\nStart it again.\n")
    store = ChatStore(AppPaths.from_environment().chats_db)
    answer = store.turns(store.summaries()[0].chat_id)[1]
    store.close()
    assert (answer.text, answer.state) == ("Half an ans", FAILED)


def test_an_engine_that_died_before_the_question_is_an_error(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    def die(engine: FakeEngine, command: Command) -> None:
        raise EngineDiedError("The engine is gone (killed by SIGKILL).", "Its log: engine.log")

    play(die)
    assert cli.main(["ask", "capital?"]) == usage.EXIT_FAILED
    assert "killed by SIGKILL" in capsys.readouterr().err
    store = ChatStore(AppPaths.from_environment().chats_db)
    assert [turn.state for turn in store.turns(store.summaries()[0].chat_id)][1:] == [FAILED]
    store.close()


def test_json_has_a_line_of_loading_for_every_change_and_says_who_answered(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, told = play(say_paris), [LoadProgress("reading", done, 9) for done in (1, 1, 1, 2, 2)]
    monkeypatch.setattr(engine, "become_ready", lambda: engine.tell(*told, replace(READY, request_id=engine.load_id)))
    assert cli.main(["ask", "--json", "--domain", "maths", "capital?"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["done"] for event in events if event["event"] == "loading"] == [1, 2]
    stats = events[-1]["stats"]
    assert (stats["domain"], stats["model"]) == ("maths", READY.model_name)


def test_json_holds_nothing_that_a_terminal_obeys(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    def script(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            engine.end_answer(command.request_id, "\x1b\x9b\u202eé", 1)

    play(script)
    cli.main(["ask", "--json", "hi"])
    out = capsys.readouterr().out
    assert not set("\x1b\x9b\u202e") & set(out)
    assert json.loads(out.splitlines()[-1])["text"] == "\x1b\x9b\u202eé"
