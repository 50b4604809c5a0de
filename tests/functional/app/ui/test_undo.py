"""What is deleted comes back: a turn into its chat, a chat into the list; from the command line, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.widgets import OptionList, Static

from app.cli import main as cli
from app.storage.paths import AppPaths
from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens.bin import BinScreen
from app.ui.screens.chat import ChatScreen
from app.ui.screens.chats import ChatsScreen
from app.ui.screens.confirm import Confirm
from app.ui.widgets.chat_list import ChatList
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import kept, talk


async def _confirm(stage: Stage, key: str) -> None:
    """Press a key that asks, and say yes."""
    await stage.pilot.press(key)
    await stage.until(lambda: isinstance(stage.app.screen, Confirm))
    await stage.pilot.press("y")
    await stage.until(lambda: not isinstance(stage.app.screen, Confirm))


async def test_a_deleted_turn_is_restored_into_chat_and_context(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."), ("two", "Second answer."))
    await stage.pilot.press("alt+up", "alt+up", "alt+up")
    await _confirm(stage, "ctrl+d")
    await stage.see("/undo restores it")
    assert "First answer." not in stage.shown()
    await stage.ask("/undo")
    await stage.see("First answer.")
    await stage.see("Restored “one”")
    lines = [line.strip() for line in stage.shown().splitlines()]
    places = [next(at for at, line in enumerate(lines) if text in line) for text in ("First", "Second")]
    assert places == sorted(places)
    await stage.ask_ready("three")
    told = [message.content for message in stage.engine.submitted()[-1].messages][1:]
    assert told == ["one", "First answer.", "two", "Second answer.", "three"]


async def test_there_may_be_nothing_to_undo(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask("/undo")
    await stage.see("Nothing was deleted.")


async def test_a_version_that_lost_its_own_turns_goes_and_comes_back_with_them(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up", "alt+v")
    await talk(stage, ("branch", "Its answer."))
    branch_id = stage.chat.flow.conversation.chat_id
    await stage.pilot.press("alt+up")
    await _confirm(stage, "ctrl+d")
    parent_id = stage.chat.flow.conversation.chat.parent_chat_id
    assert parent_id is not None
    await stage.chat.open_chat(parent_id)
    assert len(kept(stage)) == 1
    assert stage.chat.flow.version == (1, 1)
    await stage.ask("/undo")
    await stage.until(lambda: len(kept(stage)) == 2)
    await stage.chat.open_chat(branch_id)
    await stage.see("Its answer.")
    await stage.see("version 2 of 2")


async def _list(stage: Stage) -> ChatList:
    """The list of chats, opened over two that are kept."""
    store = ChatStore(stage.db_path)
    for number in (1, 2):
        chat = ChatRecord("maths", "", "demo", created_at=f"2026-01-0{number}T10:00:00.000+00:00")
        texts = (f"question {number}", "answer")
        turns = [TurnRecord(chat.chat_id, at, (USER, ASSISTANT)[at], text) for at, text in enumerate(texts)]
        store.save_whole(chat, turns)
    store.close()
    await stage.open_chat()
    await stage.pilot.press("ctrl+r")
    await stage.until(lambda: isinstance(stage.app.screen, ChatsScreen))
    chats = stage.app.screen.query_one(ChatList)
    await stage.until(lambda: len(chats.options) == 2)
    return chats


async def test_a_deleted_chat_is_restored_in_the_list(stage: Stage) -> None:
    chats = await _list(stage)
    await _confirm(stage, "ctrl+d")
    await stage.until(lambda: len(chats.options) == 1)
    await stage.see("ctrl+u restores it")
    await stage.pilot.press("ctrl+u")
    await stage.until(lambda: len(chats.options) == 2)
    await stage.pilot.press("ctrl+u")
    await stage.see("Nothing was deleted.")


async def test_any_deletion_is_restored_from_the_bin(stage: Stage) -> None:
    chats = await _list(stage)
    await _confirm(stage, "ctrl+d")
    await stage.until(lambda: len(chats.options) == 1)
    await _confirm(stage, "ctrl+d")
    await stage.until(lambda: not chats.options)
    await stage.pilot.press("ctrl+b")
    await stage.until(lambda: isinstance(stage.app.screen, BinScreen))
    listed = stage.app.screen.query_one(OptionList)
    assert [str(option.prompt).splitlines()[0] for option in listed.options] == [
        "question 1",
        "question 2",
    ]
    await stage.pilot.press("down", "enter")
    await stage.until(lambda: len(listed.options) == 1)
    assert "Restored “question 2”" in str(stage.app.screen.query_one("#list-note", Static).render())
    await stage.pilot.press("escape")
    await stage.until(lambda: len(chats.options) == 1)
    await stage.pilot.press("enter")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.see("question 2")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ChatStore:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    return ChatStore(AppPaths.from_environment().chats_db)


def test_the_command_line_deletes_lists_restores_and_empties(
    store: ChatStore, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = ChatRecord("maths", "", "demo", chat_id="a1f3" + 28 * "0")
    store.save_whole(chat, [TurnRecord(chat.chat_id, 0, USER, "about apples")])
    assert cli.main(["chats", "delete", "a1f3", "--yes"]) == 0
    assert "moe-chat chats restore a1f3" in capsys.readouterr().out
    assert cli.main(["chats", "bin"]) == 0
    assert "about apples · chat · 1 turn · deleted just now" in capsys.readouterr().out
    assert cli.main(["chats", "restore", "a1f3"]) == 0
    assert [summary.title for summary in store.summaries()] == ["about apples"]
    assert cli.main(["chats", "restore"]) == 1
    assert cli.main(["chats", "delete", "a1f3", "--yes"]) == 0
    capsys.readouterr()
    assert cli.main(["clean", "--list", "--json"]) == 0
    sizes = {place["name"]: place["used_bytes"] for place in json.loads(capsys.readouterr().out)}
    assert sizes["bin"] == len("about apples")
    assert cli.main(["clean", "bin", "--yes"]) == 0
    assert store.bin.deletions() == []
    store.close()
