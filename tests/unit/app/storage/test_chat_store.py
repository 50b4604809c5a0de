"""Chats survive: migrations, repeated writes, a damaged file, a locked one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from app.storage.database import StoreDamagedError, StoreLockedError, StoreUnwritableError
from app.storage.migrations import MIGRATIONS, migrate
from app.storage.recorder import Recorder
from app.storage.records import ASSISTANT, COMPLETE, PARTIAL, USER, ChatRecord, TurnRecord, title_from
from app.storage.store import ChatStore


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
    recorder.finish()


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
    recorder.finish()


def test_a_chat_that_was_never_begun_is_not_kept(db_path: Path) -> None:
    store = ChatStore(db_path)
    recorder, left, chat = Recorder(store, lambda _: None), _chat(), _chat()
    recorder.save_chat(left)
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "hello"))
    assert [kept.chat_id for kept in store.chats()] == [chat.chat_id]
    recorder.save_turn(_turn(left, "after all"))
    assert {kept.chat_id for kept in store.chats()} == {left.chat_id, chat.chat_id}
    recorder.finish()


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
    other.execute("COMMIT")
    other.close()
    recorder.flush()
    assert "saved" in told[-1]
    assert [turn.text for turn in store.turns(chat.chat_id)] == ["kept in memory"]
    recorder.finish()


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
    recorder.finish()
    assert not db_path.exists()


def test_chats_of_an_older_version_are_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, MIGRATIONS[:2])
    connection.execute("INSERT INTO chats VALUES ('c', 'maths', 'Be brief.', 'demo', '2026')")
    for position, role in enumerate((USER, ASSISTANT)):
        values = (
            f"t{position}",
            "c",
            position,
            role,
            f"text {position}",
            COMPLETE,
            "exact",
            "2026",
            '{"a": 1}',
            '["m"]',
        )
        connection.execute(f"INSERT INTO turns VALUES ({', '.join('?' * 10)})", values)
    connection.close()
    store = ChatStore(path)
    first, second = store.turns("c")
    assert (first.text, second.text, second.stats, second.markers) == ("text 0", "text 1", {"a": 1}, ["m"])
    assert len(store.search("text")) == 2
    store.delete_chat("c")
    assert store.turns("c") == []
    store.close()


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("What is\n\n 17 × 23?", "What is 17 × 23?"),
        ("one two three " * 20, "one two three one two three one two three one two three one…"),
        ("a" * 200, "a" * 59 + "…"),
        ("  \n ", "Untitled"),
    ],
)
def test_a_title_is_one_line_cut_at_a_word(question: str, title: str) -> None:
    assert title_from(question) == title
    assert len(title) <= 60


def _kept(store: ChatStore, *texts: str, at: str = "2026-01-01T00:00:00.000+00:00") -> ChatRecord:
    chat = ChatRecord("general", "", "demo", created_at=at)
    turns = [_turn(chat, text, position) for position, text in enumerate(texts)]
    for turn in turns:
        turn.created_at = at
    store.save_whole(chat, turns)
    return chat


def test_the_list_is_by_the_newest_turn_with_titles(db_path: Path) -> None:
    store = ChatStore(db_path)
    older = _kept(store, "older question", "answer", at="2026-01-01T00:00:00.000+00:00")
    newer = _kept(store, "newer question", at="2026-01-02T00:00:00.000+00:00")
    assert [summary.chat_id for summary in store.summaries()] == [newer.chat_id, older.chat_id]
    again = _turn(older, "again", 2)
    again.created_at = "2026-01-03T00:00:00.000+00:00"
    store.save_turn(again)
    store.rename(newer.chat_id, "  a\nname ")
    first, second = store.summaries()
    assert (first.title, first.num_turns, first.updated_at) == ("older question", 3, again.created_at)
    assert second.title == "a name"
    assert [summary.chat_id for summary in store.summaries(limit=1)] == [older.chat_id]
    store.rename(newer.chat_id, "")
    assert store.summaries()[1].title == "newer question"
    store.close()


def test_a_branch_outlives_its_parent(db_path: Path) -> None:
    store = ChatStore(db_path)
    parent = _kept(store, "question")
    branch = ChatRecord("general", "", "demo", parent_chat_id=parent.chat_id, branched_at=0)
    store.save_whole(branch, [_turn(branch, "question")])
    assert store.chat(branch.chat_id) == branch
    store.delete_chat(parent.chat_id)
    kept = store.chat(branch.chat_id)
    assert kept is not None
    assert kept.parent_chat_id is None
    assert [turn.text for turn in store.turns(branch.chat_id)] == ["question"]
    store.close()


def test_a_name_given_meanwhile_outlives_the_next_write(db_path: Path) -> None:
    store = ChatStore(db_path)
    recorder, chat = Recorder(store, lambda _: None), _chat()
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "question"))
    store.rename(chat.chat_id, "given elsewhere")
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "answer", 1))
    assert store.summaries()[0].title == "given elsewhere"
    recorder.finish()


def test_what_is_deleted_before_it_was_written_is_never_written(db_path: Path) -> None:
    store = ChatStore(db_path)
    store.open()
    other = sqlite3.connect(db_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recorder = Recorder(store, lambda _: None)
    gone, cut = _chat(), _chat()
    for chat in (gone, cut):
        recorder.save_chat(chat)
        recorder.save_turn(_turn(chat, "question"))
        answer = _turn(chat, "answer", 1)
        answer.turn_id = "answer" if chat is cut else answer.turn_id
        recorder.save_turn(answer)
    recorder.delete_chats([gone.chat_id])
    recorder.delete_turns(cut.chat_id, ["answer"])
    recorder.rename(cut.chat_id, "cut")
    recorder.save_turn(_turn(gone, "late", 2))
    other.execute("ROLLBACK")
    other.close()
    recorder.flush()
    assert [(summary.title, summary.num_turns) for summary in store.summaries()] == [("cut", 1)]
    recorder.finish()


def test_a_chat_deleted_by_another_instance_is_kept_anew_as_it_goes_on(db_path: Path) -> None:
    told: list[str] = []
    store = ChatStore(db_path)
    recorder, chat = Recorder(store, told.append), _chat()
    recorder.save_chat(chat)
    recorder.save_turn(_turn(chat, "question"))
    store.delete_chat(chat.chat_id)
    recorder.save_turn(_turn(chat, "answer", 1))
    assert [turn.text for turn in store.turns(chat.chat_id)] == ["question", "answer"]
    assert told == []
    recorder.finish()


def test_a_deleted_chat_that_is_imported_again_is_kept_as_it_goes_on(db_path: Path) -> None:
    store = ChatStore(db_path)
    recorder = Recorder(store, lambda _: None)
    chat = _kept(store, "question")
    recorder.delete_chats([chat.chat_id])
    assert recorder.load(chat.chat_id) is None
    store.save_whole(chat, [_turn(chat, "question")])
    assert recorder.load(chat.chat_id) is not None
    recorder.save_turn(_turn(chat, "answer", 1))
    assert [turn.text for turn in store.turns(chat.chat_id)] == ["question", "answer"]
    recorder.finish()


_WRITER = """
import itertools, sys
from pathlib import Path
from app.storage.records import ASSISTANT, PARTIAL, USER, ChatRecord, TurnRecord, title_from
from app.storage.store import ChatStore
from app.storage.recorder import Recorder

recorder = Recorder(ChatStore(Path(sys.argv[1])), print)
chat = ChatRecord("general", "", "demo", chat_id="c")
recorder.save_chat(chat)
recorder.save_turn(TurnRecord("c", 0, USER, "question", turn_id="q"))
answer = TurnRecord("c", 1, ASSISTANT, "", PARTIAL, turn_id="a")
for number in itertools.count():
    answer.text += f"word{number} " * 50
    recorder.save_turn(answer)
    print(len(answer.text), flush=True)
"""


@pytest.mark.parametrize("num_saves", [1, 7, 40])
def test_killed_in_mid_write_all_that_was_saved_comes_back(db_path: Path, num_saves: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(db_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout:
        saved = [int(writer.stdout.readline()) for _ in range(num_saves)][-1]
        writer.kill()
        writer.wait()
    store = ChatStore(db_path)
    question, answer = store.turns("c")
    assert (question.text, answer.state) == ("question", PARTIAL)
    assert len(answer.text) >= saved
    assert answer.text.endswith(" ")
    assert store.search("word0")[0].turn == answer
    store.close()
    checked = sqlite3.connect(db_path)
    assert checked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    checked.execute("INSERT INTO turn_index (turn_index) VALUES ('integrity-check')")
    checked.close()
