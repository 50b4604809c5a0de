"""Chats in SQLite. Writes are whole records by id, so that any of them may be repeated."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from app.formatting.sanitise import whole
from app.storage import rows as chat_rows
from app.storage import search as chat_search
from app.storage.bin import ChatBin
from app.storage.database import LOCK_WAIT_S, ChatDatabase, StoreLockedError
from app.storage.records import USER, ChatRecord, ChatSummary, SearchResult, TurnRecord
from app.storage.rows import CHAT_COLUMNS, TURN_COLUMNS, Read

_Record = TypeVar("_Record")

_SAVE_CHAT = f"""
INSERT INTO chats ({CHAT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, (SELECT chat_id FROM chats WHERE chat_id = ?), ?, ?)
ON CONFLICT (chat_id) DO UPDATE SET model = excluded.model, domain = excluded.domain,
system_prompt = excluded.system_prompt, preset = excluded.preset,
parent_chat_id = coalesce(chats.parent_chat_id, excluded.parent_chat_id)
"""
"""A title given meanwhile stays. A parent that has been deleted is no parent."""

_LINK = """
UPDATE chats SET parent_chat_id = (SELECT chat_id FROM chats WHERE chat_id = ?), branched_at = ? WHERE chat_id = ?
"""

_SAVE_TURN = f"""
INSERT INTO turns ({TURN_COLUMNS}) VALUES ({", ".join("?" * len(TURN_COLUMNS.split(", ")))})
ON CONFLICT (turn_id) DO UPDATE SET position = excluded.position, text = excluded.text, state = excluded.state,
mode_label = excluded.mode_label, stats = excluded.stats, markers = excluded.markers, thinking = excluded.thinking,
in_context = excluded.in_context, attachments = excluded.attachments
"""

_SUMMARIES = """
SELECT chats.chat_id, chats.title,
    (SELECT substr(text, 1, 1200) FROM turns WHERE turns.chat_id = chats.chat_id AND role = 'user'
     ORDER BY position LIMIT 1),
    coalesce(max(turns.created_at), chats.created_at) AS updated_at, count(turns.chat_id),
    chats.domain, chats.model, chats.parent_chat_id
FROM chats LEFT JOIN turns INDEXED BY turns_by_time ON turns.chat_id = chats.chat_id
"""
_NEWEST_FIRST = " GROUP BY chats.chat_id ORDER BY updated_at DESC, chats.chat_number DESC"


class ChatStore:
    """The chat database at `path`, opened and migrated on first use. Every method may raise a StoreError.

    A row that cannot be read is left out, and `tell` is called with what is to be said about it, once.
    """

    def __init__(self, path: Path, *, checks_at_open: bool = True, lock_wait_s: float = LOCK_WAIT_S) -> None:
        """Without `checks_at_open` the file is checked by `check` only, which takes seconds where there is much.
        `lock_wait_s`: how long each step waits for another program."""
        self.path = path
        self.tell: Callable[[str], None] = lambda _: None
        self._database = ChatDatabase(path, self._tell_once, checks_at_open=checks_at_open, lock_wait_s=lock_wait_s)
        self._told: set[str] = set()
        self.bin = ChatBin(self._database)
        """What was deleted and can be restored."""

    def open(self) -> None:
        """Open, check and migrate the database now rather than at the first use."""
        self._database.run(lambda connection: None)

    def check(self) -> None:
        """Read the whole file for damage, over a connection of its own: any thread may. Raises StoreDamagedError."""
        self._database.check()

    @property
    def can_index(self) -> bool:
        """Whether searches use a full-text index. Without one every text is read, which is slower."""
        self.open()
        return self._database.can_index

    # Writing

    def save_chat(self, chat: ChatRecord) -> None:
        """Write a chat, in place of an earlier version of it."""
        self._database.run(lambda connection: connection.execute(_SAVE_CHAT, _chat_values(chat)))

    def save_turn(self, turn: TurnRecord) -> None:
        """Write a turn, in place of an earlier version of it. Raises ChatMissingError when its chat is not kept.

        Changes the position of a new question where another program has taken it: it comes behind every other turn.
        """

        def write(connection: sqlite3.Connection) -> None:
            if turn.role == USER:
                turn.position = _free_position(connection, turn)
            connection.execute(_SAVE_TURN, _turn_values(turn))

        self._database.run_whole(write)

    def save_whole(self, chat: ChatRecord, turns: Iterable[TurnRecord]) -> None:
        """Write a chat with its turns: all of it or nothing."""
        self.save_all([(chat, turns)])

    def save_all(
        self,
        chats: Iterable[tuple[ChatRecord, Iterable[TurnRecord]]],
        links: Mapping[str, tuple[str, int | None]] | None = None,
    ) -> None:
        """Write chats with their turns, each behind its parent: all of them or nothing.

        `links` has, by the id of a chat that is kept, its parent's id and the last position they share.
        """

        def write(connection: sqlite3.Connection) -> None:
            for chat, turns in chats:
                connection.execute(_SAVE_CHAT, _chat_values(chat))
                connection.executemany(_SAVE_TURN, [_turn_values(turn) for turn in turns])
            connection.executemany(_LINK, [(*link, chat_id) for chat_id, link in (links or {}).items()])

        self._database.run_whole(write)

    def rename(self, chat_id: str, title: str) -> None:
        """Rename a chat; an empty title makes one from its first question again."""
        values = (whole(" ".join(title.split())), chat_id)
        self._database.run(
            lambda connection: connection.execute("UPDATE chats SET title = ? WHERE chat_id = ?", values)
        )

    def delete_chat(self, chat_id: str) -> None:
        """Move a chat and its turns to the bin. Its branches stay: they hold copies."""
        self.bin.take_chats([chat_id])

    def drop_chat(self, chat_id: str) -> None:
        """Delete a chat and its turns for good."""
        self._database.run(lambda connection: connection.execute("DELETE FROM chats WHERE chat_id = ?", (chat_id,)))

    def delete_turns(self, turn_ids: Iterable[str]) -> None:
        """Delete turns for good."""
        ids = [(turn_id,) for turn_id in turn_ids]
        self._database.run_whole(lambda connection: connection.executemany("DELETE FROM turns WHERE turn_id = ?", ids))

    # Reading

    def chat(self, chat_id: str) -> ChatRecord | None:
        """The chat with that id."""
        return next(iter(self._chats("WHERE chat_id = ?", chat_id)), None)

    def chats(self) -> list[ChatRecord]:
        """Every chat, the oldest first."""
        return self._chats("ORDER BY created_at")

    def matching(self, prefix: str) -> list[str]:
        """The ids of the chats that begin with `prefix`, at most ten."""
        query = "SELECT chat_id FROM chats WHERE substr(chat_id, 1, length(?1)) = ?1 LIMIT 10"
        return [chat_rows.text_of(chat_id) for (chat_id,) in self._database.rows(query, (prefix,))]

    def turns(self, chat_id: str) -> list[TurnRecord]:
        """The turns of a chat, in order."""
        return self._turns("WHERE chat_id = ? ORDER BY position", chat_id)

    def summary(self, chat_id: str) -> ChatSummary | None:
        """A chat as a line of the list."""
        rows = self._database.rows(f"{_SUMMARIES} WHERE chats.chat_id = ?{_NEWEST_FIRST}", (chat_id,))
        return next(map(chat_rows.summary_of, rows), None)

    def summaries(self, limit: int = 100) -> list[ChatSummary]:
        """The list of chats, the one with the newest turn first."""
        rows = self._database.rows(f"{_SUMMARIES}{_NEWEST_FIRST} LIMIT ?", (limit,))
        found = [chat_rows.summary_of(row) for row in rows]
        if None in found:
            self._tell_once("A chat cannot be read: its id is damaged.")
        return [summary for summary in found if summary is not None]

    def num_chats(self) -> int:
        """How many chats are kept."""
        return int(self._database.rows("SELECT count(*) FROM chats")[0][0])

    def search(self, text: str, limit: int = 50) -> list[SearchResult]:
        """Where `text` is found: titles first, then turns, the newest first. Any text is a valid search."""
        found = self._database.read(
            lambda connection: chat_search.find(connection, text, limit, can_index=self._database.can_index)
        )
        summaries = {chat_id: self.summary(chat_id) for chat_id in dict.fromkeys(match.chat_id for match in found)}
        results = []
        for match in found:
            chat = summaries[match.chat_id]
            if chat is not None:
                turn = None if match.turn_id is None else self.turn(match.turn_id)
                results.append(SearchResult(chat, turn, match.snippet))
        return results

    def turn(self, turn_id: str) -> TurnRecord | None:
        """The turn with that id."""
        return next(iter(self._turns("WHERE turn_id = ?", turn_id)), None)

    def data_version(self) -> int:
        """A number that changes once another connection has written to the database."""
        return int(self._database.rows("PRAGMA data_version")[0][0])

    # The file

    def compact(self) -> None:
        """Give back the room of what was deleted, unless another program is at work on the file."""
        with suppress(StoreLockedError):
            self._database.run(lambda connection: connection.execute("VACUUM"))
            self._database.run(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))

    def move_aside(self) -> Path:
        """Rename a damaged database; the next use begins again. Returns the new name. Raises OSError."""
        return self._database.move_aside()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _chats(self, rest: str, *values: str) -> list[ChatRecord]:
        rows = self._database.rows(f"SELECT {CHAT_COLUMNS} FROM chats {rest}", values)
        return self._usable(map(chat_rows.chat_of, rows))

    def _turns(self, rest: str, *values: str) -> list[TurnRecord]:
        rows = self._database.rows(f"SELECT {TURN_COLUMNS} FROM turns {rest}", values)
        return self._usable(map(chat_rows.turn_of, rows))

    def _usable(self, rows: Iterable[Read[_Record]]) -> list[_Record]:
        """The records that can be used; what could not be read is told."""
        read = list(rows)
        for _, problem in read:
            self._tell_once(problem)
        return [record for record, _ in read if record is not None]

    def _tell_once(self, problem: str) -> None:
        if problem and problem not in self._told:
            self._told.add(problem)
            self.tell(problem)


def _free_position(connection: sqlite3.Connection, turn: TurnRecord) -> int:
    """The turn's position, unless it is new and another turn stands there: then one behind the last exchange."""
    others = connection.execute(
        "SELECT turn_id, position, role FROM turns WHERE chat_id = ? AND position >= ? ORDER BY position DESC",
        (turn.chat_id, turn.position),
    ).fetchall()
    is_taken = any(position == turn.position for _, position, _ in others)
    if not is_taken or any(turn_id == turn.turn_id for turn_id, _, _ in others):
        return turn.position
    _, last, role = others[0]
    return int(last) + (2 if role == USER else 1)  # a question without an answer keeps room for it


def _chat_values(chat: ChatRecord) -> tuple[object, ...]:
    return (
        whole(chat.domain),
        whole(chat.system_prompt),
        whole(chat.model),
        chat.chat_id,
        chat.created_at,
        whole(chat.title),
        chat.parent_chat_id,
        chat.branched_at,
        chat_rows.preset_json(chat.preset),
    )


def _turn_values(turn: TurnRecord) -> tuple[object, ...]:
    return (
        turn.chat_id,
        turn.position,
        turn.role,
        whole(turn.text),
        turn.state,
        turn.mode_label,
        None if turn.stats is None else json.dumps(turn.stats),
        json.dumps(turn.markers),
        turn.turn_id,
        turn.created_at,
        whole(turn.thinking),
        turn.in_context,
        chat_rows.attachments_json(turn.attachments),
    )
