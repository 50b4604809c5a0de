"""What the app opens with: the menu, the chat used last, a question from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.arguments.parser import build_parser
from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.opening import Opening
from app.ui.screens.chat import ChatScreen
from app.ui.screens.domain_menu import DomainMenu
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import ObedientEngine


async def _opened(folder: Path, monkeypatch: pytest.MonkeyPatch, opening: Opening, *, kept: bool = True) -> list[str]:
    """What is on screen and was asked, of an app that opens over one kept chat."""
    monkeypatch.setenv("MOE_CHAT_HOME", str(folder))
    if kept:
        store, chat = ChatStore(folder / "chats.db"), ChatRecord("maths", "", "demo")
        texts = enumerate(("kept question", "kept answer"))
        store.save_whole(chat, [TurnRecord(chat.chat_id, at, (USER, ASSISTANT)[at], text) for at, text in texts])
        store.close()
    stage = Stage(folder, ObedientEngine, opening=opening)
    async with stage.app.run_test(size=(100, 30), notifications=True) as pilot:
        stage.pilot = pilot
        await stage.until(lambda: isinstance(stage.app.screen, ChatScreen | DomainMenu))
        if isinstance(stage.app.screen, DomainMenu):
            return ["menu"]
        if opening.question:
            await stage.until(lambda: stage.engine.submitted())
            return [message.content for message in stage.engine.submitted()[0].messages if message.role != "system"]
        await stage.see("kept answer")
        return ["chat"]


@pytest.mark.parametrize(
    ("opening", "kept", "told"),
    [
        (Opening(), True, ["menu"]),
        (Opening(continues=True), True, ["chat"]),
        (Opening(continues=True), False, ["menu"]),
        (Opening(question="What is 2+2?"), True, ["What is 2+2?"]),
        (Opening(continues=True, question="And 3?"), True, ["kept question", "kept answer", "And 3?"]),
        (Opening(continues=True, question="And 3?"), False, ["And 3?"]),
    ],
)
async def test_the_app_opens_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: Opening, kept: bool, told: list[str]
) -> None:
    assert await _opened(tmp_path, monkeypatch, opening, kept=kept) == told


@pytest.mark.parametrize(
    ("argv", "question", "goes_on"),
    [
        (["What is 2+2?"], "What is 2+2?", False),
        (["-c"], None, True),
        (["-c", "and 3 + 3?", "--model", "x"], "and 3 + 3?", True),
        (["chat", "hello"], "hello", False),
        (["chat", "-c", "and", "then?"], "and then?", True),
    ],
)
def test_the_command_line_takes_a_question(argv: list[str], question: str | None, goes_on: bool) -> None:
    arguments = build_parser().parse_args(argv)
    asked = " ".join(arguments.question) if hasattr(arguments, "question") else None
    assert (arguments.command in (None, "chat"), asked, arguments.goes_on) == (True, question, goes_on)


@pytest.mark.parametrize(("typed", "hint"), [("chts", "Did you mean chats?"), ("hello", "moe-chat chat hello")])
def test_a_wrong_command_is_no_question(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args([typed])
    assert hint in capsys.readouterr().err
