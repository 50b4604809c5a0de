"""Chats survive: migrations, repeated writes, a damaged file, a locked one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.chat_database import StoreDamagedError, StoreLockedError, StoreUnwritableError
from app.chat_records import ASSISTANT, COMPLETE, PARTIAL, USER, ChatRecord, TurnRecord
from app.chat_store import ChatStore
from app.migrations import MIGRATIONS, migrate
from app.recorder import Recorder


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "chats.db"


def _chat() -> ChatRecord:
    return ChatRecord("general", "Be brief.", "demo")


def _turn(chat: ChatRecord, text: str, position: int = 0, state: str = COMPLETE) -> TurnRecord:
    return TurnRecord(chat.chat_id, position, USER if position % 2 == 0 else ASSISTANT, text, state)


def test_a_turn_comes_back_as_it_was_saved(db_path: Path) -> None:
    store, chat = ChatStore(db_path), _chat()
    turn = _turn(chat, "What is 17 × 23?\n🙂")
    turn.stats, turn.markers, turn.mode_label = {"new_tok": 3}, ["exact → approx at token 1"], "approximate"
    store.save_chat(chat)
    store.save_turn(turn)
    store.close()
    again = ChatStore(db_path)
    assert again.turns(chat.chat_id) == [turn]
    assert again.chats() == [chat]
    again.close()


def test_saving_twice_updates(db_path: Path) -> None:
    store, chat = ChatStore(db_path), _chat()
    store.save_chat(chat)
    turn = _turn(chat, "par", 1, PARTIAL)
    store.save_turn(turn)
    turn.text, turn.state = "partial no more", COMPLETE
    store.save_turn(turn)
    assert [(kept.text, kept.state) for kept in store.turns(chat.chat_id)] == [("partial no more", COMPLETE)]
    store.close()


def test_migrations_run_once_each_and_in_order(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    assert migrate(connection, MIGRATIONS[:1]) == [MIGRATIONS[0].name]
    connection.execute("INSERT INTO chats VALUES ('c', 'maths', '', 'demo', '2026')")
    connection.execute("INSERT INTO turns VALUES ('t', 'c', 0, 'user', 'hi', 'complete', '', '2026')")
    assert migrate(connection) == [step.name for step in MIGRATIONS[1:]]
    assert migrate(connection) == []
    assert connection.execute("SELECT text, markers FROM turns").fetchall() == [("hi", "[]")]
    connection.close()


def test_a_failing_migration_leaves_nothing_half_done(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    broken = MIGRATIONS[0]._replace(sql="CREATE TABLE chats (x); CREATE TABLE chats (x)")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (broken,))
    assert migrate(connection) == [step.name for step in MIGRATIONS]
    connection.close()


@pytest.mark.parametrize("content", [b"this is no database, not at all" * 200, b"SQLite format 3\0" + b"\xff" * 8000])
def test_a_damaged_database_is_told_apart(db_path: Path, content: bytes) -> None:
    db_path.parent.mkdir(parents=True)
    db_path.write_bytes(content)
    with pytest.raises(StoreDamagedError):
        ChatStore(db_path).open()


def test_a_damaged_database_is_moved_aside_with_its_companions_and_nothing_is_lost(db_path: Path) -> None:
    db_path.parent.mkdir(parents=True)
    for suffix in ("", "-wal", "-shm"):
        db_path.with_name(db_path.name + suffix).write_bytes(b"garbage" * 1000)
    told: list[str] = []
    store = ChatStore(db_path)
    recorder, chat = Recorder(store, told.append), _chat()
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "still here"))
    assert [turn.text for turn in store.turns(chat.chat_id)] == ["still here"]
    assert len(told) == 1
    assert "damaged" in told[0]
    aside = {path.name for path in db_path.parent.iterdir() if ".damaged-" in path.name}
    assert {name.rpartition(".db")[2] for name in aside} >= {"", "-wal"}
    recorder.close()


def test_damage_while_running_keeps_the_whole_chat(db_path: Path) -> None:
    told: list[str] = []
    store = ChatStore(db_path)
    recorder, chat = Recorder(store, told.append), _chat()
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "first"))
    store.close()
    db_path.write_bytes(b"garbage" * 1000)
    recorder.save_turn(_turn(chat, "second", 1))
    assert [turn.text for turn in store.turns(chat.chat_id)] == ["first", "second"]
    recorder.close()


def test_a_locked_database_is_not_damaged_and_is_written_later(db_path: Path) -> None:
    ChatStore(db_path).open()
    other = sqlite3.connect(db_path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    told: list[str] = []
    store = ChatStore(db_path)
    recorder, chat = Recorder(store, told.append), _chat()
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "kept in memory"))
    recorder.flush()
    assert len(told) == 1
    assert "Another program holds" in told[0]
    assert recorder.num_unsaved == 2
    other.execute("COMMIT")
    other.close()
    recorder.flush()
    assert recorder.num_unsaved == 0
    assert "saved" in told[-1]
    assert [turn.text for turn in store.turns(chat.chat_id)] == ["kept in memory"]
    recorder.close()


def test_locked_raises_its_own_error(db_path: Path) -> None:
    store = ChatStore(db_path)
    store.open()
    other = sqlite3.connect(db_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreLockedError):
        store.save_chat(_chat())
    other.execute("ROLLBACK")
    other.close()
    store.close()


def test_an_unwritable_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnwritableError):
        ChatStore(tmp_path / "file" / "chats.db").open()


def test_a_chat_without_turns_is_not_written(db_path: Path) -> None:
    recorder = Recorder(ChatStore(db_path), lambda _: None)
    recorder.save_chat(_chat())
    recorder.close()
    assert not db_path.exists()
