"""What is deleted can be had back, whole; until then no list, search or export knows of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.storage.bin import BIN_DAYS, NotInBinError
from app.storage.database import StoreLockedError
from app.storage.export import with_versions
from app.storage.recorder import Recorder
from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    opened = ChatStore(tmp_path / "chats.db")
    yield opened
    opened.close()


def _keep(store: ChatStore, *texts: str, parent: ChatRecord | None = None, at: int | None = None) -> ChatRecord:
    chat = ChatRecord("maths", "Be brief.", "demo", parent_chat_id=parent and parent.chat_id, branched_at=at)
    roles = (USER, ASSISTANT)
    store.save_whole(chat, [TurnRecord(chat.chat_id, at, roles[at % 2], text) for at, text in enumerate(texts)])
    return chat


def _texts(store: ChatStore, chat_id: str) -> list[str]:
    return [turn.text for turn in store.turns(chat_id)]


def test_a_deleted_chat_is_nowhere_and_comes_back_whole(store: ChatStore) -> None:
    chat = _keep(store, "question about planets", "an answer")
    before = store.chat(chat.chat_id), store.turns(chat.chat_id)
    store.delete_chat(chat.chat_id)
    assert store.search("planets") == store.summaries() == with_versions(store, [chat.chat_id]) == []
    (deletion,) = store.bin.deletions()
    assert (deletion.title, deletion.num_turns, deletion.is_chat) == ("question about planets", 2, True)
    store.bin.restore(deletion.deletion_id)
    assert (store.chat(chat.chat_id), store.turns(chat.chat_id)) == before
    assert len(store.search("planets")) == 1
    assert store.bin.deletions() == []


def test_versions_come_back_linked(store: ChatStore) -> None:
    first = _keep(store, "one", "answer")
    second = _keep(store, "one", "another answer", parent=first, at=0)
    outside = _keep(store, "one", "a third", parent=second, at=0)
    recorder = Recorder(store, lambda _: None)
    recorder.delete_chats([second.chat_id, first.chat_id])
    assert [chat.parent_chat_id for chat in store.chats()] == [None]
    recorder.undo()
    parents = {chat.chat_id: (chat.parent_chat_id, chat.branched_at) for chat in store.chats()}
    assert parents == {
        first.chat_id: (None, None),
        second.chat_id: (first.chat_id, 0),
        outside.chat_id: (second.chat_id, 0),
    }


def test_a_deleted_turn_comes_back_into_its_place(store: ChatStore) -> None:
    chat = _keep(store, "one", "first", "two", "second", "three", "third")
    recorder = Recorder(store, lambda _: None)
    recorder.delete_turns(chat.chat_id, [turn.turn_id for turn in store.turns(chat.chat_id)[2:4]])
    assert _texts(store, chat.chat_id) == ["one", "first", "three", "third"]
    assert recorder.undo(chat.chat_id).chat_ids == (chat.chat_id,)
    assert _texts(store, chat.chat_id) == ["one", "first", "two", "second", "three", "third"]


def test_a_turn_whose_place_is_taken_comes_back_as_a_version(store: ChatStore) -> None:
    chat = _keep(store, "one", "first", "two", "second")
    recorder = Recorder(store, lambda _: None)
    recorder.delete_turns(chat.chat_id, [turn.turn_id for turn in store.turns(chat.chat_id)[2:]])
    store.save_turn(TurnRecord(chat.chat_id, 2, USER, "instead"))
    (branch,) = recorder.undo(chat.chat_id).chat_ids
    assert _texts(store, chat.chat_id) == ["one", "first", "instead"]
    assert _texts(store, branch) == ["one", "first", "two", "second"]
    kept = store.chat(branch)
    assert kept is not None
    assert (kept.parent_chat_id, kept.branched_at) == (chat.chat_id, 1)


def test_a_chat_that_was_kept_anew_loses_nothing_by_restoring(store: ChatStore) -> None:
    chat = _keep(store, "one", "first")
    store.delete_chat(chat.chat_id)
    store.save_whole(chat, [TurnRecord(chat.chat_id, 0, USER, "one again")])
    (deletion,) = store.bin.deletions()
    (branch,) = store.bin.restore(deletion.deletion_id).chat_ids
    assert _texts(store, chat.chat_id) == ["one again"]
    assert _texts(store, branch) == ["one", "first"]


def test_undo_takes_the_last_deletion_of_this_chat_or_of_a_chat(store: ChatStore) -> None:
    here, other, gone = (_keep(store, text, "answer") for text in ("here", "other", "gone"))
    recorder = Recorder(store, lambda _: None)
    with pytest.raises(NotInBinError):
        recorder.undo(here.chat_id)
    recorder.delete_turns(here.chat_id, [store.turns(here.chat_id)[1].turn_id])
    recorder.delete_chats([gone.chat_id])
    recorder.delete_turns(other.chat_id, [store.turns(other.chat_id)[1].turn_id])
    assert recorder.undo(here.chat_id).chat_ids == (gone.chat_id,)
    assert recorder.undo(here.chat_id).chat_ids == (here.chat_id,)
    with pytest.raises(NotInBinError):
        recorder.undo(here.chat_id)
    recorder.save_turn(TurnRecord(gone.chat_id, 2, USER, "it goes on"))
    assert _texts(store, gone.chat_id) == ["gone", "answer", "it goes on"]


def test_a_turn_of_a_deleted_chat_waits_for_its_chat(store: ChatStore) -> None:
    chat = _keep(store, "one", "first", "two", "second")
    store.bin.take_turns(chat.chat_id, [turn.turn_id for turn in store.turns(chat.chat_id)[2:]])
    store.delete_chat(chat.chat_id)
    of_chat, of_turns = store.bin.deletions()
    with pytest.raises(NotInBinError):
        store.bin.restore(of_turns.deletion_id)
    store.bin.restore(of_chat.deletion_id)
    store.bin.restore(of_turns.deletion_id)
    assert _texts(store, chat.chat_id) == ["one", "first", "two", "second"]


def test_what_was_deleted_before_it_could_be_written_comes_back(store: ChatStore) -> None:
    store.open()
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recorder, chat = Recorder(store, lambda _: None), ChatRecord("maths", "", "demo")
    recorder.save_chat(chat)
    recorder.save_turn(TurnRecord(chat.chat_id, 0, USER, "not written yet"))
    recorder.delete_chats([chat.chat_id])
    with pytest.raises(StoreLockedError):
        recorder.undo()
    other.execute("ROLLBACK")
    other.close()
    recorder.undo()
    assert _texts(store, chat.chat_id) == ["not written yet"]


def test_a_damaged_row_comes_back_as_it_was(store: ChatStore) -> None:
    chat = _keep(store, "one", "first")
    raw = sqlite3.connect(store.path, isolation_level=None)
    raw.execute("UPDATE turns SET markers = x'ff00', stats = 'not json' WHERE position = 1")
    before = raw.execute("SELECT * FROM turns ORDER BY position").fetchall()
    store.delete_chat(chat.chat_id)
    store.bin.restore(store.bin.deletions()[0].deletion_id)
    after = raw.execute("SELECT * FROM turns ORDER BY position").fetchall()
    raw.close()
    assert [row[1:] for row in after] == [row[1:] for row in before]


def test_what_is_older_than_the_bin_keeps_goes_at_the_start(store: ChatStore) -> None:
    old, new = _keep(store, "old"), _keep(store, "new")
    store.delete_chat(old.chat_id)
    long_ago = datetime.now(UTC) - timedelta(days=BIN_DAYS, minutes=1)
    raw = sqlite3.connect(store.path, isolation_level=None)
    raw.execute("UPDATE deletions SET deleted_at = ?", (long_ago.isoformat(timespec="milliseconds"),))
    store.delete_chat(new.chat_id)
    asyncio.run(Recorder(store, lambda _: None).check())
    assert [deletion.title for deletion in store.bin.deletions()] == ["new"]
    assert raw.execute("SELECT count(*) FROM deleted_turns").fetchone() == (1,)
    raw.close()
    assert store.bin.empty() == 1
    assert store.bin.deletions() == []
