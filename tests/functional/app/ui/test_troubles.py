"""Slow, failing and dying engines, a locked store, quitting and crashing: nothing is lost, all of it is said."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from app.formatting.progress_line import Pace
from app.storage.records import FAILED
from app.storage.store import ChatStore
from app.ui.widgets.prompt import Prompt
from engine.api import Cancel, Load
from engine.events import Failed, LoadProgress, PrefillProgress
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import MIB, FakeEngine, ObedientEngine


async def test_the_answers_error_is_shown_with_what_to_do(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("a very long question")
    stage.engine.tell(
        Failed(request, "The context is full", "9000 tokens do not fit.", "Begin a new chat.", is_fatal=False)
    )
    await stage.see("The context is full: 9000 tokens do not fit.")
    await stage.see("Begin a new chat.")
    reader = ChatStore(stage.db_path)
    assert reader.turns(reader.chats()[0].chat_id)[1].state == FAILED
    reader.close()
    await stage.ask_ready("short")
    assert [message.content for message in stage.engine.submitted()[-1].messages][1:] == ["short"]


async def test_engine_death_is_told_and_a_key_restarts_it(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    stage.engine.begin_answer("Half an ans", 3)
    await stage.see("Half an ans")
    stage.engine.die()
    await stage.see("killed by signal 9")
    await stage.see("engine.log")
    await stage.see("f8 starts the engine again")
    await stage.see("Half an ans")
    await stage.ask("still there")
    assert stage.chat.flow.conversation.waiting
    await stage.pilot.press("f8")
    await stage.until(lambda: len(stage.engines) == 2)
    assert stage.engines[0].is_closed
    await stage.until(lambda: stage.engine.submitted())
    contents = [message.content for message in stage.engine.submitted()[0].messages]
    assert contents[1:] == ["hello", "Half an ans", "still there"]


async def test_quit_closes_the_engine_and_keeps_the_partial_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    stage = Stage(tmp_path, ObedientEngine)
    async with stage.app.run_test() as stage.pilot:
        await stage.open_chat()
        await stage.ask_ready("hello")
        stage.engine.begin_answer("Half", 1)
        await stage.see("Half")
        await stage.pilot.press("ctrl+q")
    assert stage.engine.is_closed
    reader = ChatStore(stage.db_path)
    assert reader.turns(reader.chats()[0].chat_id)[1].text == "Half"
    reader.close()


async def test_a_locked_store_is_said_and_the_chat_goes_on(stage: Stage) -> None:
    await stage.open_chat()
    ChatStore(stage.db_path).open()
    other = sqlite3.connect(stage.db_path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    await stage.ask_ready("hello")
    await stage.see("Another program")
    other.execute("COMMIT")
    other.close()
    await stage.see("can be written again")


class TestSlowEngine:
    """Before the engine is ready."""

    @pytest.fixture
    def engine_type(self) -> type[FakeEngine]:
        return FakeEngine

    async def test_loading_is_shown_and_an_early_question_waits(self, stage: Stage) -> None:
        await stage.see("starting the engine")
        await stage.open_chat()
        stage.engine.tell(LoadProgress("building the demo model", 12, 30, "layers"))
        await stage.see("building the demo model")
        await stage.see("12 of 30 layers")
        await stage.ask("too early")
        await stage.waiting(1)
        assert stage.engine.submitted() == []
        stage.engine.become_ready()
        await stage.until(lambda: len(stage.engine.submitted()) == 1)
        await stage.until(lambda: "1 message waiting" not in stage.shown())
        request = stage.engine.submitted()[0].request_id
        stage.engine.tell(PrefillProgress(request, 16, 64, 8))
        await stage.see("16 of 64 tok, 8 cached")
        stage.bridge.prefill_pace = pace = Pace()
        pace.note(16, 64, now=time.monotonic() - 1)
        stage.engine.tell(PrefillProgress(request, 32, 64, 8))
        await stage.see("32 of 64 tok, 8 cached · 5 s left")

    async def test_a_waiting_question_can_be_taken_back(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask("too early")
        await stage.waiting(1)
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.query_one(Prompt).text == "too early")
        stage.engine.become_ready()
        await stage.loaded()
        assert stage.engine.submitted() == []

    async def test_a_model_that_cannot_be_loaded(self, stage: Stage) -> None:
        await stage.open_chat()
        stage.engine.tell(Failed(None, "No such model", "There is no folder x.", "Check the name.", is_fatal=False))
        await stage.see("No such model: There is no folder x. Check the name.")
        await stage.see("f8 loads the model again")
        await stage.pilot.press("f8")
        await stage.until(lambda: [type(command) for command in stage.engine.sent] == [Load, Load])
        assert len(stage.engines) == 1, "the process lives: it need not import torch again"
        stage.engine.become_ready()
        await stage.loaded()

    @pytest.mark.parametrize("is_in_menu", [True, False])
    async def test_loading_can_be_stopped_and_taken_up_again(self, stage: Stage, is_in_menu: bool) -> None:
        if not is_in_menu:
            await stage.open_chat()
        stage.engine.tell(LoadProgress("reading weights", 12 * MIB, 139 * MIB))
        await stage.see("12.0 MiB of 139 MiB  ·  esc stops")
        await stage.see("esc Stop ")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.engine.sent[-1] == Cancel())
        await stage.see("stopping …")
        stage.engine.tell(Failed(None, "Stopped", "It was stopped.", "", is_fatal=False))
        await stage.see("Stopped  ·  f8 loads the model again")
        await stage.pilot.press("f8")
        await stage.until(lambda: isinstance(stage.engine.sent[-1], Load))
        stage.engine.become_ready()
        await stage.until(lambda: stage.bridge.is_ready)
        await stage.until(lambda: "loads the model again" not in stage.shown())


async def test_an_unexpected_error_leaves_a_sentence_and_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    staged = Stage(tmp_path, FakeEngine)

    async def explode() -> None:
        raise ZeroDivisionError("deep inside")

    with pytest.raises(ZeroDivisionError):  # noqa: PT012  a pilot raises again what ended the app
        async with staged.app.run_test() as pilot:
            staged.app.call_later(explode)
            await pilot.pause()
    assert "ZeroDivisionError: deep inside" in (tmp_path / "log" / "moe-chat.log").read_text()
    assert staged.engine.is_closed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_when_told_and_when_its_terminal_goes(number: signal.Signals) -> None:
    terminal, end_of_app = pty.openpty()
    termios.tcsetwinsize(terminal, (40, 120))
    app = subprocess.Popen(
        [sys.executable, "-m", "tests.functional.app.scripted_engine"],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=end_of_app,
        stdout=end_of_app,
        stderr=end_of_app,
        start_new_session=True,
    )
    os.close(end_of_app)
    try:
        drawn = b""
        while b"chat about" not in drawn:
            drawn += os.read(terminal, 65536)
        if number == signal.SIGHUP:
            os.close(terminal)
        app.send_signal(number)
        if number == signal.SIGTERM:
            with contextlib.suppress(OSError):  # the end of the terminal
                while os.read(terminal, 65536):
                    pass
            os.close(terminal)
        assert app.wait(timeout=10) in (0, 128 + signal.SIGHUP)
    finally:
        app.kill()
        app.wait()
