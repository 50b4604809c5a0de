"""Chats in SQLite. Writes are whole records by id, so that any of them may be repeated.

StoreError (a MoeChatError)
├── StoreLockedError     another program holds the database: try again later
├── StoreDamagedError    the file is no database any more: `move_aside`, then begin anew
└── StoreUnwritableError no permission, no space
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from app.chat_records import ChatRecord, TurnRecord
from app.migrations import migrate
from engine.errors import MoeChatError

_Result = TypeVar("_Result")

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MAGIC = b"SQLite format 3\0"
_LOCK_WAIT_S = 0.2
"""How long a write waits for another program: it runs between two frames, so not long."""


_SAVE_TURN = """
INSERT INTO turns (turn_id, chat_id, position, role, text, state, mode_label, stats, markers, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (turn_id) DO UPDATE SET text = excluded.text, state = excluded.state,
mode_label = excluded.mode_label, stats = excluded.stats, markers = excluded.markers
"""


class StoreError(MoeChatError):
    """The chat database cannot be used."""

    title = "Chat database"


class StoreLockedError(StoreError):
    """Another program holds the database."""


class StoreDamagedError(StoreError):
    """The file is damaged."""


class StoreUnwritableError(StoreError):
    """The database cannot be written at all."""


class ChatStore:
    """The chat database at `path`, opened and migrated on first use. Every method may raise a StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open, check and migrate the database now rather than at the first use."""
        self._run(lambda connection: None)

    def save_chat(self, chat: ChatRecord) -> None:
        """Write a chat, in place of an earlier version of it."""
        values = (chat.chat_id, chat.domain, chat.system_prompt, chat.model, chat.created_at)
        self._run(
            lambda connection: connection.execute(
                "INSERT INTO chats (chat_id, domain, system_prompt, model, created_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (chat_id) DO UPDATE SET model = excluded.model",
                values,
            )
        )

    def save_turn(self, turn: TurnRecord) -> None:
        """Write a turn, in place of an earlier version of it. Its chat must have been saved."""
        values = (
            turn.turn_id,
            turn.chat_id,
            turn.position,
            turn.role,
            turn.text.encode("utf-8", "replace").decode(),
            turn.state,
            turn.mode_label,
            None if turn.stats is None else json.dumps(turn.stats),
            json.dumps(turn.markers),
            turn.created_at,
        )
        self._run(lambda connection: connection.execute(_SAVE_TURN, values))

    def chats(self) -> list[ChatRecord]:
        """Every chat, the oldest first."""
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT domain, system_prompt, model, chat_id, created_at FROM chats ORDER BY created_at"
            ).fetchall()
        )
        return [ChatRecord(*row) for row in rows]

    def turns(self, chat_id: str) -> list[TurnRecord]:
        """The turns of a chat, in order."""
        columns = "chat_id, position, role, text, state, mode_label, stats, markers, turn_id, created_at"
        rows = self._run(
            lambda connection: connection.execute(
                f"SELECT {columns} FROM turns WHERE chat_id = ? ORDER BY position", (chat_id,)
            ).fetchall()
        )
        return [_turn(row) for row in rows]

    def move_aside(self) -> Path:
        """Rename the database and its -wal and -shm to a dated name; the next use begins anew.

        Returns the new name.
        """
        self.close()
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        aside = self.path.with_name(f"{self.path.stem}.damaged-{stamp}{self.path.suffix}")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        return aside

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return work(self._connection)
        except sqlite3.DatabaseError as error:
            raise self._translated(error) from error
        except OSError as error:
            raise StoreUnwritableError(
                f"{self.path} cannot be written: {error.strerror}.", "Chats are kept in memory until it can."
            ) from error

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._check_header()
        connection = sqlite3.connect(self.path, timeout=_LOCK_WAIT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StoreDamagedError(f"{self.path} is damaged: {verdict}.")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_header(self) -> None:
        """Tell a file that is no database before SQLite opens it and deletes the -wal, which may hold chats."""
        if self.path.exists():
            with self.path.open("rb") as file:
                header = file.read(len(_MAGIC))
            if header not in (b"", _MAGIC):
                raise StoreDamagedError(f"{self.path} is damaged: it does not begin like a database.")

    def _translated(self, error: sqlite3.DatabaseError) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_LOCKED):
            return StoreLockedError(
                "Another program holds the chat database.",
                "This chat is kept in memory and saved as soon as it is free.",
            )
        if name.startswith(_DAMAGED) or "malformed" in str(error):
            return StoreDamagedError(f"{self.path} is damaged: {error}.")
        return StoreUnwritableError(
            f"The chat database cannot be written: {error}.", "Chats are kept in memory until it can."
        )


def _turn(row: tuple[Any, ...]) -> TurnRecord:
    chat_id, position, role, text, state, mode_label, stats, markers, turn_id, created_at = row
    return TurnRecord(
        chat_id=chat_id,
        position=position,
        role=role,
        text=text,
        state=state,
        mode_label=mode_label,
        stats=json.loads(stats) if stats else None,
        markers=json.loads(markers),
        turn_id=turn_id,
        created_at=created_at,
    )
