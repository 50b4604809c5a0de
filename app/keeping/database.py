"""The chat database's file: opened, checked, migrated, and its troubles told apart.

StoreError (a MoeChatError)
├── StoreLockedError     another program holds the database: try again later
├── StoreDamagedError    the file is no database any more: `move_aside`, then begin anew
├── StoreUnwritableError no permission, no space
└── ChatMissingError     a turn of a chat that is not, or no more, kept
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from app.keeping.migrations import has_fts5, migrate
from engine.errors import MoeChatError

_Result = TypeVar("_Result")

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MAGIC = b"SQLite format 3\0"
_LOCK_WAIT_S = 0.2
"""How long a write waits for another program: it runs between two frames, so not long."""


class StoreError(MoeChatError):
    """The chat database cannot be used."""

    title = "Chat database"


class StoreLockedError(StoreError):
    """Another program holds the database."""


class StoreDamagedError(StoreError):
    """The file is damaged."""


class StoreUnwritableError(StoreError):
    """The database cannot be written at all."""


class ChatMissingError(StoreError):
    """The turn's chat is not in the database."""


class ChatDatabase:
    """One connection to the database at `path`, made at the first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.can_index = False
        """Whether this SQLite has full-text search; known once the database is open."""
        self._connection: sqlite3.Connection | None = None

    def run(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Do something with the open database, each statement a transaction of its own. Raises StoreError."""
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

    def run_whole(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Like `run`, as one transaction: all of it is kept or nothing. Raises StoreError."""

        def transaction(connection: sqlite3.Connection) -> _Result:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise
            return result

        return self.run(transaction)

    def move_aside(self) -> Path:
        """Rename the database and its -wal and -shm to a dated name; the next use begins anew.

        Returns the new name. Raises OSError.
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
        """Close the database; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
            self.can_index = has_fts5(connection)
            migrate(connection, can_index=self.can_index)
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
        if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
            return ChatMissingError("The chat is no longer kept.", "It was deleted meanwhile.")
        if name.startswith(_DAMAGED) or "malformed" in str(error):
            return StoreDamagedError(f"{self.path} is damaged: {error}.")
        return StoreUnwritableError(
            f"The chat database cannot be written: {error}.", "Chats are kept in memory until it can."
        )
