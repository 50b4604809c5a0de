"""One chat that two instances have open, sheets over a chat that is left, and rows that change while others come."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from app.chat.exchange import pair
from app.storage.recorder import Recorder
from app.storage.records import ASSISTANT, COMPLETE, PARTIAL, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens.chat import ChatScreen
from app.ui.screens.chats import ChatsScreen
from app.ui.screens.sheets import EditQuestion
from app.ui.widgets.prompt import Prompt
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import kept, talk


def test_two_stores_write_one_chat_and_keep_every_turn(tmp_path: Path) -> None:
    first, second = ChatStore(tmp_path / "chats.db"), ChatStore(tmp_path / "chats.db")
    chat = ChatRecord("maths", "", "demo")
    first.save_chat(chat)
    mine = TurnRecord(chat.chat_id, 0, USER, "mine")
    theirs = TurnRecord(chat.chat_id, 0, USER, "theirs")
    first.save_turn(mine)
    second.save_turn(theirs)
    assert (mine.position, theirs.position) == (0, 2)
    first.save_turn(TurnRecord(chat.chat_id, mine.position + 1, ASSISTANT, "my answer"))
    second.save_turn(TurnRecord(chat.chat_id, theirs.position + 1, ASSISTANT, "their answer"))
    mine.text = "mine, changed"
    first.save_turn(mine)
    assert [turn.text for turn in first.turns(chat.chat_id)] == ["mine, changed", "my answer", "theirs", "their answer"]
    first.close()
    second.close()


def test_a_recorder_tells_what_another_one_wrote(tmp_path: Path) -> None:
    stores = [ChatStore(tmp_path / "chats.db") for _ in range(2)]
    one, other = (Recorder(store, lambda _: None) for store in stores)
    chat = ChatRecord("maths", "", "demo")
    one.save_chat(chat)
    one.save_turn(TurnRecord(chat.chat_id, 0, USER, "question"))
    one.elsewhere(chat.chat_id)
    assert one.elsewhere(chat.chat_id) is None
    other.save_turn(TurnRecord(chat.chat_id, 2, USER, "another"))
    turns = one.elsewhere(chat.chat_id)
    assert [turn.text for turn in turns or ()] == ["question", "another"]
    other.delete_turns(chat.chat_id, [turn.turn_id for turn in (turns or [])[:1]])
    assert [turn.text for turn in one.elsewhere(chat.chat_id) or ()] == ["another"]
    for store in stores:
        store.close()


async def _another(stage: Stage, *texts: str, state: str = COMPLETE) -> tuple[ChatStore, list[TurnRecord]]:
    """What a second instance writes behind the turns of the chat on screen."""
    store, chat_id = ChatStore(stage.db_path), stage.chat.flow.conversation.chat_id
    begin = 1 + max(turn.position for turn in store.turns(chat_id))
    turns = [
        TurnRecord(chat_id, begin + at, (USER, ASSISTANT)[at % 2], text, state if at % 2 else COMPLETE)
        for at, text in enumerate(texts)
    ]
    for turn in turns:
        store.save_turn(turn)
    return store, turns


async def test_what_another_instance_writes_is_shown_as_it_grows(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    store, turns = await _another(stage, "from elsewhere", "It beg", state=PARTIAL)
    await stage.see("It beg")
    await stage.see("Another moe-chat wrote 1 question in this chat.")
    await stage.see("another moe-chat is writing this")
    turns[1].text, turns[1].state = "It begins and ends.", COMPLETE
    store.save_turn(turns[1])
    await stage.see("It begins and ends.")
    await stage.until(lambda: "is writing this" not in stage.shown())
    store.bin.take_turns(turns[0].chat_id, [turn.turn_id for turn in turns])
    await stage.until(lambda: "It begins and ends." not in stage.shown())
    store.close()
    await stage.ask_ready("two")
    assert [message.content for message in stage.engine.submitted()[-1].messages][1:] == ["one", "First answer.", "two"]


async def test_a_question_waits_until_what_is_new_was_seen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    monkeypatch.setattr("app.ui.screens.chat._SAVE_EVERY_S", 3600.0)
    store, _ = await _another(stage, "from elsewhere", "Its answer.")
    store.close()
    await stage.ask("two")
    await stage.see("Its answer.")
    assert len(stage.engine.submitted()) == 1
    assert stage.chat.query_one(Prompt).text == "two"
    await stage.pilot.press("enter")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    texts = [message.content for message in stage.engine.submitted()[-1].messages][1:]
    assert texts == ["one", "First answer.", "from elsewhere", "Its answer.", "two"]
    assert [turn.position for turn in kept(stage)[0]] == [0, 1, 2, 3, 4]


async def test_a_sheet_about_a_chat_closes_with_it(stage: Stage) -> None:
    other = ChatRecord("maths", "", "demo")
    store = ChatStore(stage.db_path)
    store.save_whole(other, [TurnRecord(other.chat_id, 0, USER, "another chat")])
    store.close()
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    chat_screen = stage.chat
    await stage.pilot.press("alt+up", "alt+e")
    await stage.until(lambda: isinstance(stage.app.screen, EditQuestion))
    await stage.pilot.press("!", "ctrl+r")
    await stage.until(lambda: isinstance(stage.app.screen, ChatsScreen))
    await stage.pilot.press(*"another", "enter")
    await stage.until(lambda: chat_screen.flow.conversation.chat_id == other.chat_id)
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.see("another chat")
    await stage.pilot.press("up")
    assert stage.chat.query_one(Prompt).text == "one!"
    assert len(stage.engine.submitted()) == 1


async def test_a_step_on_a_turn_of_another_chat_does_nothing(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    exchange, turns = stage.chat.flow.conversation.exchanges[0], stage.chat.turn_actions.steps
    await stage.pilot.press("ctrl+n")
    await stage.until(lambda: not stage.chat.flow.conversation.exchanges)
    for step in (turns.regenerate, turns.branch, turns.delete, turns.go_on, turns.change_context):
        assert await step(exchange)
    assert await turns.ask_differently(exchange, "else")
    assert [turn.text for turn in kept(stage)[0]] == ["one", "First answer."]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
async def test_rows_stay_in_order_whatever_changes_while_they_come(stage: Stage, seed: int) -> None:
    await stage.open_chat()
    transcript, chance = stage.chat.transcript, random.Random(seed)
    turns = [TurnRecord("c", at, (USER, ASSISTANT)[at % 2], f"turn {at}") for at in range(80)]
    exchanges = pair(turns)
    await transcript.show(exchanges)
    for _ in range(4):
        gone = [exchanges.pop(chance.randrange(len(exchanges))) for _ in range(3)]
        steps = [
            transcript.to_start(),
            transcript.add_notice("a notice"),
            transcript.to_end(),
            transcript.add_first_notice("the first notice"),
            transcript.reveal(transcript.entries[chance.randrange(len(transcript.entries))]),
            *(transcript.remove_exchange(exchange) for exchange in gone),
        ]
        chance.shuffle(steps)
        await asyncio.gather(*steps)
        mounted = [entry.widget for entry in transcript.entries if entry.widget is not None]
        shown = [child for child in transcript.children if child.id not in ("earlier", "later")]
        assert shown == mounted
        places = [at for at, entry in enumerate(transcript.entries) if entry.widget is not None]
        assert places == list(range(places[0], places[0] + len(places)))
