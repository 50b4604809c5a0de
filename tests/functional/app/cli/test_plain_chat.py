"""`moe-chat --plain`: what is typed or piped in, line by line, and what comes back."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli import engine_run, usage
from app.cli import main as cli
from app.storage.paths import AppPaths
from app.storage.store import ChatStore
from engine.api import Command, SetDomain, SetMode, Submit
from engine.events import CANCELLED, LABEL_APPROX_CONTEXT, LABEL_EXACT, LENGTH, Failed, TextDelta
from tests.functional.app.fake_engine import READY, FakeEngine
from tests.functional.app.played_engine import Play, PlayedEngine, say_paris

Chat = Callable[..., tuple[FakeEngine, int]]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Chat:
    """Chat with what is typed; returns the engine and the exit code."""
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def converse(*lines: str, script: Play = say_paris) -> tuple[FakeEngine, int]:
        engine = PlayedEngine(script)
        monkeypatch.setattr(engine_run, "make_link", lambda paths: engine)
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return engine, cli.main(["--plain"])

    return converse


def _titles() -> list[str]:
    store = ChatStore(AppPaths.from_environment().chats_db)
    titles = [summary.title for summary in store.summaries()]
    store.close()
    return titles


def _texts(engine: FakeEngine) -> list[list[str]]:
    return [[message.content for message in submit.messages] for submit in engine.submitted()]


def test_messages_are_answered_in_order_and_kept(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    engine, code = chat("capital?", "", "and its river?")
    assert code == 0
    assert _texts(engine) == [["capital?"], ["capital?", "It is Paris.", "and its river?"]]
    assert engine.is_closed
    printed = capsys.readouterr()
    assert printed.out == "It is Paris.\nIt is Paris.\n"
    assert "\x1b" not in printed.out + printed.err
    assert "TTFT" in printed.err
    assert _titles() == ["capital?"]


def test_several_lines_are_one_message(chat: Chat) -> None:
    engine, _ = chat('"""first', "  second", 'third"""', " /no command")
    assert _texts(engine)[0] == ["first\n  second\nthird"]
    assert _texts(engine)[1][-1] == "/no command"


def test_commands(chat: Chat, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine, code = chat(
        "/help", "/mode approx", "capital?", "/title A name", "/stats", "/export out.md", "/new maths", "1+1", "/chats",
        "/chats paris", "/system Be brief.", "/quit", "never read",
    )  # fmt: skip
    assert code == 0
    assert [type(command) for command in engine.sent[1:]] == [SetMode, Submit, SetDomain, Submit]
    out = capsys.readouterr().out
    for told in ("/continue", "The mode is approx.", "A name · just now", "experts", "out.md", "A new chat, Maths."):
        assert told in out
    assert (tmp_path / "out.md").read_text().startswith("# A name\n")
    assert sorted(_titles()) == ["1+1", "A name"]


def test_a_chat_is_opened_and_goes_on(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    chat("capital?")
    engine, _ = chat("/open last", "and its river?")
    assert "# capital?" in capsys.readouterr().out
    assert _texts(engine) == [["capital?", "It is Paris.", "and its river?"]]


def test_again_computes_an_approximate_context_anew(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    def script(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            label = LABEL_EXACT if command.recomputes else LABEL_APPROX_CONTEXT
            engine.end_answer(command.request_id, "Paris.", 1, label=label)

    engine, _ = chat("capital?", "/again", "/again", script=script)
    assert [submit.recomputes for submit in engine.submitted()] == [False, True, False]
    assert capsys.readouterr().err.count("Under EXACT, /regenerate") == 2


def test_again_keeps_the_earlier_answer_in_another_version(chat: Chat) -> None:
    engine, _ = chat("capital?", "/again", "/delete")
    assert _texts(engine) == [["capital?"], ["capital?"]]
    assert _titles().count("capital?") == 1
    engine, _ = chat("capital?", "/again")
    assert _titles().count("capital?") == 3


def test_what_was_deleted_is_restored_and_told_to_the_model_again(chat: Chat) -> None:
    engine, _ = chat("capital?", "/delete", "of France?", "/undo", "and now?")
    assert _texts(engine)[-1] == [
        "of France?",
        "It is Paris.",
        "and now?",
    ]  # its place was taken: it is a version of its own
    engine, _ = chat("capital?", "/delete", "/undo", "and now?")
    assert _texts(engine)[-1] == ["capital?", "It is Paris.", "and now?"]


def test_an_answer_that_was_cut_is_continued(chat: Chat) -> None:
    def cut(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            engine.tell(TextDelta(command.request_id, "One", 1))
            engine.end_answer(command.request_id, "One", 1, reason=LENGTH)

    engine, _ = chat("count", "/continue", script=cut)
    assert engine.submitted()[1].continues
    store = ChatStore(AppPaths.from_environment().chats_db)
    assert store.turns(store.summaries()[0].chat_id)[1].text == "OneOne"
    store.close()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/nothing", "There is no command /nothing."),
        ("/mode fast", "Unknown mode 'fast'."),
        ("/new astrology", "Unknown domain 'astrology'."),
        ("/open zzz", "No chat's id begins with 'zzz'."),
        ("/again", "There is no answer yet."),
        ("/delete", "There is no answer yet."),
        ("/undo", "Nothing was deleted."),
        ("/export", "There is nothing to export yet."),
        ("/thinking high", "no thinking choice 'high'"),
    ],
)
def test_a_wrong_command_is_told_and_the_chat_goes_on(
    line: str, told: str, chat: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, code = chat(line, "capital?")
    assert code == 0
    assert told in capsys.readouterr().err
    assert len(engine.submitted()) == 1


def test_thinking_stays_in_the_next_chat(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.functional.app.fake_engine.READY", replace(READY, thinking_choices=("off", "on")))
    engine, _ = chat("/thinking off", "one", "/new", "two")
    assert [submit.thinking for submit in engine.submitted()] == ["off", "off"]


def test_an_error_ends_the_answer_and_the_end_of_the_engine_ends_the_chat(
    chat: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            is_fatal = command.request_id == 2
            engine.tell(Failed(command.request_id, "Trouble", f"Number {command.request_id}.", "", is_fatal=is_fatal))

    engine, code = chat("one", "two", "three", script=fail)
    assert code == usage.EXIT_FAILED
    assert len(engine.submitted()) == 2
    assert "Trouble: Number 1." in capsys.readouterr().err


def test_what_a_given_up_answer_still_says_is_not_the_next_ones(
    chat: Chat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is stopped, and the engine takes longer to end it than anybody waits."""
    monkeypatch.setattr("app.cli.commands.plain_commands.PATIENT_WAIT_S", 0.0)

    def script(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit) and command.request_id == 1:
            engine.tell(TextDelta(1, "Once", 1))
            os.kill(os.getpid(), signal.SIGINT)
        elif isinstance(command, Submit):
            engine.tell(TextDelta(1, " upon", 2))
            engine.end_answer(1, "Once upon", 2, reason=CANCELLED)
            engine.tell(TextDelta(2, "Paris", 1))
            engine.end_answer(2, "Paris", 1)

    engine, code = chat("a story", "capital?", script=script)
    assert (code, len(engine.submitted())) == (0, 2)
    assert capsys.readouterr().out == "Paris\n"
