"""The list of chats, by keyboard and by mouse, on a real database."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, Static

from app.storage.recorder import Recorder
from app.storage.records import ASSISTANT, USER, ChatPlace, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens.chats import ChatsScreen
from app.ui.screens.confirm import Confirm
from app.ui.themes import DARK, load_themes
from app.ui.widgets.chat_list import ChatList
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import ObedientEngine
from tests.patience import PATIENCE_S

_NOTHING_YET = "nothing yet"


class Shelf(App[None]):
    """The screen alone, over an empty app."""

    CSS_PATH = [f"../../../../app/ui/styles/{name}.tcss" for name in ("base", "chats")]  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.store = ChatStore(folder / "chats.db")
        self.chosen: str | None = _NOTHING_YET
        self.place: ChatPlace | None = None
        self.open_chat_id: str | None = None
        self.pilot: Pilot[Any]
        for theme in load_themes():
            self.register_theme(theme)
        self.theme = DARK

    def keep(self, *texts: str, hour: int = 10, parent: ChatRecord | None = None) -> ChatRecord:
        at = f"2026-01-05T{hour:02}:00:00.000+00:00"
        parent_id = parent.chat_id if parent is not None else None
        chat = ChatRecord("maths", "", "demo", created_at=at, parent_chat_id=parent_id)
        roles = (USER, ASSISTANT)
        turns = [
            TurnRecord(chat.chat_id, number, roles[number % 2], text, created_at=at)
            for number, text in enumerate(texts)
        ]
        self.store.save_whole(chat, turns)
        return chat

    def choose(self) -> None:
        """Open the list."""
        recorder = Recorder(self.store, lambda text: self.notify(text))
        self.push_screen(ChatsScreen(self.store, recorder, self.open_chat_id), self._chosen)

    def _chosen(self, place: ChatPlace | None) -> None:
        self.place, self.chosen = place, place.chat_id if place is not None else None

    @property
    def titles(self) -> list[str]:
        chats = self.screen.query_one(ChatList)
        return [str(option.prompt).splitlines()[0] for option in chats.options]

    @property
    def note(self) -> str:
        return str(self.screen.query_one("#chats-note", Static).content)

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the condition never held"
            await asyncio.sleep(0.01)


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shelf]:
    monkeypatch.chdir(tmp_path)
    shelf = Shelf(tmp_path)
    shelf.keep("about apples", "red", hour=9)
    shelf.keep("about pears", "The colour is green [red]\nand yellow", hour=11)
    async with shelf.run_test(size=(100, 30)) as shelf.pilot:
        shelf.choose()
        await shelf.pilot.pause()
        yield shelf
    shelf.store.close()


async def test_the_newest_comes_first_and_enter_opens_it(shelf: Shelf) -> None:
    assert shelf.titles == ["about pears", "about apples"]
    await shelf.pilot.press("down", "enter")
    await shelf.until(lambda: shelf.chosen != _NOTHING_YET)
    assert shelf.chosen == shelf.store.summaries()[1].chat_id


async def test_typing_searches_every_text_and_shows_where(shelf: Shelf) -> None:
    await shelf.pilot.press(*"yellow")
    await shelf.until(lambda: shelf.titles == ["about pears"])
    entry = shelf.screen.query_one(ChatList).options[0].prompt
    assert "green [red] and yellow" in str(entry)
    assert "1 place, in 1 chat" in shelf.note
    await shelf.pilot.press("enter")
    await shelf.until(lambda: shelf.chosen == shelf.store.summaries()[0].chat_id)
    assert shelf.place is not None
    assert (shelf.place.position, shelf.place.found) == (1, ("yellow",))


async def test_enter_right_after_typing_opens_what_was_typed_for(shelf: Shelf) -> None:
    await shelf.pilot.press(*"apples", "enter")
    await shelf.until(lambda: shelf.chosen == shelf.store.summaries()[1].chat_id)


async def test_nothing_found_and_back(shelf: Shelf) -> None:
    await shelf.pilot.press(*"zebra")
    await shelf.until(lambda: shelf.titles == [])
    assert shelf.note == "No matches."
    await shelf.pilot.press("escape")
    await shelf.until(lambda: len(shelf.titles) == 2)
    await shelf.pilot.press("escape")
    await shelf.until(lambda: shelf.chosen is None)


async def test_a_click_opens(shelf: Shelf) -> None:
    await shelf.pilot.click(ChatList, offset=(5, 2))
    await shelf.until(lambda: shelf.chosen == shelf.store.summaries()[1].chat_id)


async def test_rename(shelf: Shelf) -> None:
    await shelf.pilot.press("ctrl+e")
    line = shelf.screen.query_one(Input)
    assert line.value == "about pears"
    line.value = "[bold]Fruit[/bold]"
    await shelf.pilot.press("enter")
    await shelf.until(lambda: shelf.titles[0] == "[bold]Fruit[/bold]")
    assert line.value == ""


async def test_delete_asks_first(shelf: Shelf) -> None:
    for key in ("escape", "n", "enter", "down", "ctrl+e"):
        await shelf.pilot.press("ctrl+d")
        await shelf.until(lambda: isinstance(shelf.screen, Confirm))
        await shelf.pilot.press(key)
        await shelf.until(lambda: isinstance(shelf.screen, ChatsScreen))
        await shelf.pilot.press("y", "backspace")
    assert shelf.store.num_chats() == 2
    await shelf.pilot.press("ctrl+d", "y")
    await shelf.until(lambda: isinstance(shelf.screen, ChatsScreen))
    await shelf.until(lambda: shelf.titles == ["about apples"])
    assert shelf.store.num_chats() == 1


@pytest.mark.parametrize("key", ["ctrl+e", "ctrl+s"])
async def test_a_line_is_about_the_chat_it_was_asked_for(shelf: Shelf, key: str) -> None:
    await shelf.pilot.press(key)
    shelf.screen.query_one(ChatList).highlighted = 1
    line = shelf.screen.query_one(Input)
    line.value = "pears.md"
    await shelf.pilot.press("enter")
    if key == "ctrl+e":
        await shelf.until(lambda: shelf.titles == ["pears.md", "about apples"])
    else:
        await shelf.until(lambda: "Saved to" in shelf.note)
        assert "The colour is green" in (shelf.folder / "pears.md").read_text()


async def test_a_click_while_a_name_is_typed_opens_nothing(shelf: Shelf) -> None:
    await shelf.pilot.press("ctrl+e")
    await shelf.pilot.click(ChatList, offset=(5, 2))
    await shelf.pilot.pause()
    assert shelf.chosen == _NOTHING_YET


async def test_versions_of_a_chat_are_one_entry_and_go_together(shelf: Shelf) -> None:
    await shelf.pilot.press("escape")
    root = shelf.keep("a question", "answer", hour=12)
    branch = shelf.keep("a question", "another answer", hour=13, parent=root)
    shelf.keep("a question", "a third", hour=12, parent=branch)
    shelf.choose()
    await shelf.until(lambda: shelf.screen.query(ChatList) and shelf.titles[:1] == ["a question"])
    assert shelf.titles == ["a question", "about pears", "about apples"]
    assert "3 versions" in str(shelf.screen.query_one(ChatList).options[0].prompt)
    await shelf.pilot.press(*"third")
    await shelf.until(lambda: len(shelf.titles) == 1)
    await shelf.pilot.press("ctrl+d", "y")
    await shelf.until(lambda: shelf.store.num_chats() == 2)


async def test_the_open_chat_is_not_deleted(shelf: Shelf) -> None:
    await shelf.pilot.press("escape")
    shelf.open_chat_id = shelf.store.summaries()[0].chat_id
    shelf.choose()
    await shelf.until(lambda: shelf.screen.query(ChatList) and shelf.titles)
    assert shelf.titles[0] == "about pears · open now"
    await shelf.pilot.press("ctrl+d")
    assert "This chat is open" in shelf.note
    assert shelf.store.num_chats() == 2


@pytest.mark.parametrize("suffix", ["md", "json"])
async def test_export(shelf: Shelf, suffix: str) -> None:
    await shelf.pilot.press("ctrl+s")
    line = shelf.screen.query_one(Input)
    await shelf.until(lambda: line.value.startswith("about-pears-"))
    line.value = f"out.{suffix}"
    await shelf.pilot.press("enter")
    await shelf.until(lambda: "Saved to" in shelf.note)
    written = (shelf.folder / f"out.{suffix}").read_text()
    assert "The colour is green [red]" in written
    assert suffix == "md" or json.loads(written)["format"] == "moe-chat"
    await shelf.pilot.press("ctrl+s")
    line.value = f"out.{suffix}"
    await shelf.pilot.press("enter")
    await shelf.until(lambda: "exists already" in shelf.note)


async def test_import(shelf: Shelf) -> None:
    await shelf.pilot.press("ctrl+s")
    shelf.screen.query_one(Input).value = "out.json"
    await shelf.pilot.press("enter")
    await shelf.until(lambda: "Saved to" in shelf.note)
    await shelf.pilot.press("ctrl+d", "y")
    await shelf.until(lambda: isinstance(shelf.screen, ChatsScreen) and shelf.titles == ["about apples"])
    await shelf.pilot.press("ctrl+o")
    shelf.screen.query_one(Input).value = "out.json"
    await shelf.pilot.press("enter")
    await shelf.until(lambda: shelf.titles == ["about pears", "about apples"])
    assert shelf.note == "1 chat imported"
    await shelf.pilot.press("ctrl+o")
    shelf.screen.query_one(Input).value = "missing.json"
    await shelf.pilot.press("enter")
    await shelf.until(lambda: "cannot be read" in shelf.note)


async def test_a_damaged_database_is_said(shelf: Shelf) -> None:
    await shelf.pilot.press("escape")
    shelf.store.close()
    shelf.store.path.write_bytes(b"garbage" * 1000)
    shelf.choose()
    await shelf.until(lambda: shelf.screen.query(ChatList) and "is damaged" in shelf.note)


async def test_an_empty_shelf_says_so(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    async with shelf.run_test(size=(60, 16)) as shelf.pilot:
        shelf.choose()
        await shelf.until(lambda: shelf.screen.query(ChatList) and "No chats yet" in shelf.note)
        await shelf.pilot.press("enter", "ctrl+d", "ctrl+e", "ctrl+s")
        assert shelf.chosen == _NOTHING_YET
    shelf.store.close()


async def test_an_earlier_chat_is_found_and_goes_on_in_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    stage = Stage(tmp_path, ObedientEngine, "")
    async with stage.app.run_test(size=(120, 40)) as stage.pilot:
        await stage.open_chat()
        request = await stage.ask_ready("about walruses")
        stage.engine.begin_answer("They swim.", 3)
        stage.engine.end_answer(request, "They swim.", 3)
        await stage.see("They swim.")
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: "They swim." not in stage.shown())
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: isinstance(stage.app.screen, ChatsScreen))
        await stage.pilot.press(*"walrus", "enter")
        await stage.see("They swim.")
        await stage.ask_ready("and walk?")
        contents = [message.content for message in stage.engine.submitted()[-1].messages]
        assert contents[1:] == ["about walruses", "They swim.", "and walk?"]
