"""A row that cannot be read costs that row, and it is said; everything else lists, opens, is found and exported."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.process.instance import InstanceLock
from app.storage import chat_import, export, import_file
from app.storage.database import ChatDatabase, StoreDamagedError, StoreUnwritableError
from app.storage.paths import make_private
from app.storage.recorder import Recorder
from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    store = ChatStore(tmp_path / "chats.db")
    for number in range(3):
        chat = ChatRecord("maths", "Be brief.", "demo", chat_id=f"chat{number}", title=f"title {number}")
        turns = [
            TurnRecord(chat.chat_id, 0, USER, f"question {number}", turn_id=f"{number}-0"),
            TurnRecord(chat.chat_id, 1, ASSISTANT, f"answer {number}", stats={"reason": "stop"}, turn_id=f"{number}-1"),
        ]
        store.save_whole(chat, turns)
    yield store
    store.close()


def _damage(store: ChatStore, sql: str) -> None:
    store.close()
    connection = sqlite3.connect(store.path)
    for trigger in ("turn_index_update", "title_index_update"):
        connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(sql)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("table", "change", "turns_left"),
    [
        ("turns", "text = CAST(x'ff41fe' AS TEXT)", 2),
        ("turns", "text = x'ff41fe'", 2),
        ("turns", "thinking = x'00ff'", 2),
        ("turns", "stats = '{\"reason\": '", 2),
        ("turns", "stats = '[1]'", 2),
        ("turns", "stats = x'ff00'", 2),
        ("turns", "markers = 'nothing'", 2),
        ("turns", "markers = '[' || replace(hex(zeroblob(100000)), '0', '[')", 2),
        ("turns", "state = x'00'", 2),
        ("turns", "created_at = 'once'", 2),
        ("turns", "position = x'00'", 1),
        ("turns", "position = 'first'", 1),
        ("turns", "role = 'nobody'", 1),
        ("turns", "turn_id = x'ff'", 1),
        ("turns", "chat_id = CAST(x'ff' AS TEXT)", 1),
        ("chats", "title = x'fffe'", 2),
        ("chats", "title = CAST(x'fffe' AS TEXT)", 2),
        ("chats", "system_prompt = x'ff', domain = x'fe', model = x'fd'", 2),
        ("chats", "created_at = x'ff'", 2),
        ("chats", "branched_at = 'x', parent_chat_id = x'00'", 2),
        ("chats", "chat_id = x'ff'", None),
        ("chats", "chat_id = CAST(x'ff' AS TEXT)", None),
    ],
)
def test_a_damaged_row_costs_that_row(
    store: ChatStore, tmp_path: Path, table: str, change: str, turns_left: int | None
) -> None:
    which = "turn_id = '1-1'" if table == "turns" else "chat_id = 'chat1'"
    _damage(store, f"UPDATE {table} SET {change} WHERE {which}")
    told: list[str] = []
    store.tell = told.append
    listed = {summary.chat_id for summary in store.summaries()}
    kept = {chat.chat_id: store.turns(chat.chat_id) for chat in store.chats()}
    assert listed == set(kept)
    assert {"chat0", "chat2"} <= set(kept)
    assert len(kept["chat0"]) == len(kept["chat2"]) == 2
    assert len(kept.get("chat1", ())) == (turns_left or 0)
    assert {hit.chat.chat_id for hit in store.search("question")} >= {"chat0", "chat2"}
    assert {hit.chat.chat_id for hit in store.search("=> question")} == set()
    if "created_at" not in change and "branched_at" not in change:
        assert told
    text = export.as_json(export.with_versions(store, kept))
    other = ChatStore(tmp_path / "other.db")
    assert len(chat_import.import_chats(other, import_file.read_bytes(text.encode()).chats).new) == len(kept)
    for kept_chat in export.with_versions(other, kept):
        export.as_markdown(kept_chat)
    other.close()


def test_each_damage_is_said_once(store: ChatStore) -> None:
    _damage(store, "UPDATE turns SET stats = '{' WHERE turn_id = '1-1'")
    told: list[str] = []
    Recorder(store, told.append)
    for _ in range(3):
        store.turns("chat1")
    assert told == ["Parts of turn 2 of chat chat1 cannot be read."]


@pytest.mark.parametrize("which", ["id > 10", "id = 10", "true"])
def test_a_damaged_search_index_costs_no_chat(store: ChatStore, which: str) -> None:
    _damage(store, f"UPDATE turn_index_data SET block = x'ffffffffffffffff' WHERE {which}")
    told: list[str] = []
    store.tell = told.append
    assert {hit.chat.chat_id for hit in store.search("question")} == {"chat0", "chat1", "chat2"}
    store.save_turn(TurnRecord("chat0", 2, USER, "one more question"))
    assert any("index" in line for line in told)


async def test_the_whole_file_is_checked_in_a_thread(store: ChatStore) -> None:
    path = store.path
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 2048] = b"\xff" * 2048
    path.write_bytes(bytes(content))
    unchecked = ChatStore(path, checks_at_open=False)
    with pytest.raises(StoreDamagedError):
        unchecked.check()
    told: list[str] = []
    recorder = Recorder(unchecked, told.append)
    await recorder.check()
    assert "damaged" in told[0]
    assert list(path.parent.glob("chats.damaged-*.db"))
    recorder.finish()


async def test_the_event_loop_never_waits_for_the_check(store: ChatStore, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(ChatDatabase, "_check", lambda *_: threads.append(threading.current_thread()))
    unchecked = ChatStore(store.path, checks_at_open=False)
    assert unchecked.num_chats() == 3
    assert threads == []
    await Recorder(unchecked, print).check()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    unchecked.close()


def test_what_is_no_file_is_said_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chats.db")
    with pytest.raises(StoreUnwritableError, match="not a file"):
        ChatStore(tmp_path / "chats.db").open()


def test_what_is_kept_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    lock = InstanceLock(folder / "instance.pid")
    lock.acquire()
    store = ChatStore(folder / "chats.db")
    store.save_whole(ChatRecord("general", "", "demo", chat_id="a"), [TurnRecord("a", 0, USER, "private")])
    _check_modes(folder)
    profile = folder / "profiles" / "demo" / "general.json"
    profile.parent.mkdir(parents=True, mode=0o755)
    profile.touch(0o644)
    make_private(folder)
    _check_modes(folder)
    store.close()
    lock.release()


def _check_modes(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
