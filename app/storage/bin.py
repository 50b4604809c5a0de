"""The bin of the chat database: what was deleted is kept for a while and can be restored.

Deleted rows are in tables of their own, so that lists, search, export and context never see them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from app.storage.database import ChatDatabase, StoreError
from app.storage.records import Deletion, new_id, now, title_from
from app.storage.rows import CHAT_COLUMNS, TURN_COLUMNS, text_of

BIN_DAYS = 30
"""How long deleted chats and turns are kept."""

_CHATS, _TURNS = CHAT_COLUMNS.split(", "), TURN_COLUMNS.split(", ")

_LIST = """
SELECT deletion_id, deleted_at, chat_id, is_chat,
    (SELECT title FROM deleted_chats AS chats
     WHERE chats.deletion_id = deletions.deletion_id AND chats.chat_id = deletions.chat_id),
    (SELECT substr(text, 1, 1200) FROM deleted_turns AS turns
     WHERE turns.deletion_id = deletions.deletion_id AND turns.chat_id = deletions.chat_id AND role = 'user'
     ORDER BY position LIMIT 1),
    (SELECT count(*) FROM deleted_turns AS turns
     WHERE turns.deletion_id = deletions.deletion_id AND turns.chat_id = deletions.chat_id),
    (SELECT count(*) FROM deleted_chats AS chats WHERE chats.deletion_id = deletions.deletion_id)
FROM deletions
"""
_NEWEST_FIRST = " ORDER BY deleted_at DESC, rowid DESC"


class NotInBinError(StoreError):
    """There is nothing to restore, or nothing of that id."""

    title = "Bin"


class Restored(NamedTuple):
    """What was restored, and where it is now."""

    deletion: Deletion
    chat_ids: tuple[str, ...]
    """The chats it is in now; a new one where its place had been taken."""


class ChatBin:
    """Deletions of one database. Every method may raise a StoreError; what changes, changes whole or not at all."""

    def __init__(self, database: ChatDatabase) -> None:
        self._database = database

    def take_chats(self, chat_ids: Iterable[str], deletion_id: str | None = None) -> None:
        """Move chats with their turns to the bin, the newest first, as one deletion.

        With the id of a deletion that is there they become part of it. Chats that are not kept are passed over.
        """
        ids = list(chat_ids)

        def take(connection: sqlite3.Connection) -> None:
            known = [name for name in ids if _has(connection, "chats", "chat_id", name)]
            if not known:
                return
            deletion = _begin(connection, deletion_id or new_id(), known[0], is_chat=True)
            for name in known:
                _copy(connection, "chats", CHAT_COLUMNS, deletion, "chat_id", name)
                _copy(connection, "turns", TURN_COLUMNS, deletion, "chat_id", name)
                _copy(connection, "chats", "chat_id, parent_chat_id, branched_at", deletion, "parent_chat_id", name)
            connection.executemany("DELETE FROM chats WHERE chat_id = ?", [(name,) for name in known])

        self._database.run_whole(take)

    def take_turns(self, chat_id: str, turn_ids: Iterable[str], deletion_id: str | None = None) -> None:
        """Move turns of a chat to the bin, as one deletion. Turns that are not kept are passed over."""
        ids = list(turn_ids)

        def take(connection: sqlite3.Connection) -> None:
            known = [name for name in ids if _has(connection, "turns", "turn_id", name)]
            if not known:
                return
            deletion = _begin(connection, deletion_id or new_id(), chat_id, is_chat=False)
            for name in known:
                _copy(connection, "turns", TURN_COLUMNS, deletion, "turn_id", name)
            connection.executemany("DELETE FROM turns WHERE turn_id = ?", [(name,) for name in known])

        self._database.run_whole(take)

    def deletions(self) -> list[Deletion]:
        """Everything in the bin, the newest first."""
        return self._listed(_NEWEST_FIRST)

    def deletion(self, deletion_id: str) -> Deletion | None:
        """The deletion of that id."""
        return next(iter(self._listed("WHERE deletion_id = ?", deletion_id)), None)

    def newest(self, chat_id: str | None = None) -> Deletion | None:
        """The last deletion of a chat, or of turns in the chat `chat_id`."""
        return next(iter(self._listed(f"WHERE is_chat OR chat_id = ?{_NEWEST_FIRST} LIMIT 1", chat_id)), None)

    def newest_turns(self, chat_id: str) -> Deletion | None:
        """The last deletion of turns in that chat."""
        return next(iter(self._listed(f"WHERE NOT is_chat AND chat_id = ?{_NEWEST_FIRST} LIMIT 1", chat_id)), None)

    def restore(self, deletion_id: str) -> Restored:
        """Put what was deleted back. Raises NotInBinError.

        Turns whose place has been taken since come into a branch of their chat. Links to branches are put back.
        """
        deletion = self.deletion(deletion_id)
        if deletion is None:
            raise NotInBinError("There is nothing to restore.", "What is in the bin: moe-chat chats bin")
        chat_ids = self._database.run_whole(lambda connection: _restore(connection, deletion))
        return Restored(deletion, tuple(chat_ids))

    def empty(self, *, days: int = 0) -> int:
        """Delete for good what was deleted more than `days` ago; returns how many deletions that were."""
        before = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")
        if days == 0:
            before = "~"  # behind every time
        return self._database.run_whole(
            lambda connection: connection.execute("DELETE FROM deletions WHERE deleted_at < ?", (before,)).rowcount
        )

    def used_bytes(self) -> int:
        """About how much the deleted texts take."""
        size = "coalesce(sum(length(text) + length(thinking) + coalesce(length(stats), 0)), 0)"
        return int(self._database.rows(f"SELECT {size} FROM deleted_turns")[0][0])

    def _listed(self, rest: str, *values: str | None) -> list[Deletion]:
        rows = self._database.rows(f"{_LIST} {rest}", values)
        return [
            Deletion(
                text_of(deletion_id),
                text_of(deleted_at),
                text_of(chat_id),
                bool(is_chat),
                text_of(title) or title_from(text_of(question)),
                num_turns,
                num_chats,
            )
            for deletion_id, deleted_at, chat_id, is_chat, title, question, num_turns, num_chats in rows
        ]


def _has(connection: sqlite3.Connection, table: str, column: str, value: object) -> bool:
    return connection.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (value,)).fetchone() is not None


def _begin(connection: sqlite3.Connection, deletion_id: str, chat_id: str, *, is_chat: bool) -> str:
    connection.execute(
        "INSERT INTO deletions VALUES (?, ?, ?, ?) ON CONFLICT (deletion_id) DO UPDATE SET is_chat = excluded.is_chat",
        (deletion_id, now(), chat_id, is_chat),
    )
    return deletion_id


def _copy(connection: sqlite3.Connection, table: str, columns: str, deletion_id: str, column: str, value: str) -> None:
    """Copy rows of a table into the bin's; the children of a chat, whose link is cut, as links."""
    into = "links" if column == "parent_chat_id" else table
    connection.execute(
        f"INSERT INTO deleted_{into} (deletion_id, {columns}) SELECT ?, {columns} FROM {table} WHERE {column} = ?",
        (deletion_id, value),
    )


def _restore(connection: sqlite3.Connection, deletion: Deletion) -> list[str]:
    """The chats that what was deleted is in now."""
    chats = _deleted(connection, "chats", CHAT_COLUMNS, deletion)
    turns = _deleted(connection, "turns", TURN_COLUMNS, deletion)
    if not chats:
        _need_chat(connection, deletion.chat_id)
    for chat in chats:
        unlinked = [None if name == "parent_chat_id" else value for name, value in zip(_CHATS, chat, strict=True)]
        _insert(connection, "chats", CHAT_COLUMNS, unlinked, "ON CONFLICT (chat_id) DO NOTHING")
    own = [chat[_CHATS.index("chat_id")] for chat in chats] or [deletion.chat_id]
    places = [_put(connection, str(name), [turn for turn in turns if turn[0] == name]) for name in own]
    links: list[tuple[object, ...]] = [(chat[3], chat[6], chat[7]) for chat in chats]
    links += _deleted(connection, "links", "chat_id, parent_chat_id, branched_at", deletion)
    connection.executemany(
        "UPDATE chats SET parent_chat_id = ?2, branched_at = ?3 WHERE chat_id = ?1 AND parent_chat_id IS NULL"
        " AND EXISTS (SELECT 1 FROM chats WHERE chat_id = ?2)",
        links,
    )
    connection.execute("DELETE FROM deletions WHERE deletion_id = ?", (deletion.deletion_id,))
    return places


def _need_chat(connection: sqlite3.Connection, chat_id: str) -> None:
    """The chat of deleted turns is there. Raises NotInBinError."""
    if not _has(connection, "chats", "chat_id", chat_id):
        in_bin = _has(connection, "deleted_chats", "chat_id", chat_id)
        hint = "Restore that chat first." if in_bin else "It cannot be restored any more."
        raise NotInBinError("The chat that it was in is deleted.", hint)


def _deleted(connection: sqlite3.Connection, table: str, columns: str, deletion: Deletion) -> list[tuple[object, ...]]:
    return connection.execute(
        f"SELECT {columns} FROM deleted_{table} WHERE deletion_id = ? ORDER BY rowid", (deletion.deletion_id,)
    ).fetchall()


def _insert(
    connection: sqlite3.Connection, table: str, columns: str, row: Sequence[object], conflict: str = ""
) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks}) {conflict}", row)


def _put(connection: sqlite3.Connection, chat_id: str, turns: list[tuple[object, ...]]) -> str:
    """Insert turns into their chat, or into a branch of it where their place is taken; returns which."""
    there = connection.execute(f"SELECT {TURN_COLUMNS} FROM turns WHERE chat_id = ?", (chat_id,)).fetchall()
    at, turn_id = _TURNS.index("position"), _TURNS.index("turn_id")
    known, taken = {turn[turn_id] for turn in there}, {turn[at] for turn in there}
    missing = [turn for turn in turns if turn[turn_id] not in known]
    into = chat_id
    if any(turn[at] in taken for turn in missing):
        first = min(int(str(turn[at])) for turn in missing)
        into = _branch(connection, chat_id, first)
        before = [turn for turn in there if isinstance(turn[at], int) and turn[at] < first]
        missing = [(into, *turn[1:turn_id], new_id(), *turn[turn_id + 1 :]) for turn in (*before, *missing)]
    for turn in missing:
        _insert(connection, "turns", TURN_COLUMNS, turn)
    return into


def _branch(connection: sqlite3.Connection, chat_id: str, position: int) -> str:
    """A chat that shares with `chat_id` what stands before `position`."""
    name = new_id()
    connection.execute(
        f"INSERT INTO chats ({CHAT_COLUMNS}) SELECT domain, system_prompt, model, ?, ?, title, chat_id, ?, preset"
        " FROM chats WHERE chat_id = ?",
        (name, now(), position - 1, chat_id),
    )
    return name
