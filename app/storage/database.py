"""The chat database's file: opened, checked, migrated, and its troubles told apart.

StoreError (a MoeChatError)
├── StoreLockedError     another program holds the database: try again later
├── StoreDamagedError    the file is no database any more: `move_aside`, then begin again
├── StoreUnwritableError no permission, no space: chats can be read all the same (`ChatDatabase.read`)
└── ChatMissingError     a turn of a chat that is not, or no more, kept
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from app.storage.database_copy import open_copy
from app.storage.migrations import SEARCH_TRIGGERS, has_fts5, migrate, transaction
from app.storage.paths import private_file, private_folder
from app.storage.system_errors import advice, open_file, reason, why_unwritable
from engine.errors import MoeChatError

_Result = TypeVar("_Result")

_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_MAGIC = b"SQLite format 3\0"
_NO_INDEX = "vtable constructor failed"
"""What SQLite says where an index is so damaged that it cannot be opened."""
LOCK_WAIT_S = 0.2
"""How long the app waits for another program: it writes between two frames, so not long."""


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

    def __init__(
        self,
        path: Path,
        tell: Callable[[str], None],
        *,
        checks_at_open: bool = True,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        """`tell` is called where a text in the file is damaged, or the search index was."""
        self.path = path
        self._tell = tell
        self._checks_at_open = checks_at_open
        self._lock_wait_s = lock_wait_s
        self.can_index = False
        """Whether this SQLite has full-text search; known once the database is open."""
        self._connection: sqlite3.Connection | None = None
        self._copy: sqlite3.Connection | None = None
        """What is read while the database itself cannot be opened."""

    def run(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Do something with the open database, each statement a transaction of its own. Raises StoreError."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            try:
                return work(self._connection)
            except sqlite3.DatabaseError as error:
                if not self._has_mended_index(error, self._connection):
                    raise
                return work(self._connection)
        except sqlite3.DatabaseError as error:
            raise self._translated(error) from error
        except OSError as error:
            raise self._unwritable(error) from error

    def read(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Like `run`, for what changes nothing: where the database cannot be opened, because the disk is full or cannot
        be written, a copy of it in memory is read. Raises StoreError."""
        try:
            result = self.run(work)
        except StoreUnwritableError:
            try:
                self._copy = self._copy or open_copy(self.path, self._decoded)
                return work(self._copy)
            except (OSError, sqlite3.DatabaseError):
                self._forget_copy()
            raise
        self._forget_copy()
        return result

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """What a query finds, by `read`. Raises StoreError."""
        return self.read(lambda connection: connection.execute(query, values).fetchall())

    def run_whole(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Like `run`, as one transaction: all of it is kept or nothing. Raises StoreError."""

        def whole(connection: sqlite3.Connection) -> _Result:
            with transaction(connection):
                return work(connection)

        return self.run(whole)

    def move_aside(self) -> Path:
        """Rename the database and its -wal and -shm to a dated name; the next use begins again.

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
        self._forget_copy()

    def _forget_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def check(self) -> None:
        """Read the whole file for damage, over a connection of its own. Raises StoreDamagedError.

        A file that is moved aside meanwhile, because its damage was met elsewhere, is not reported again.
        """
        if not self.path.exists():
            return
        checked = self.path.stat()
        try:
            self._check_alone()
        except StoreDamagedError:
            if self.path.exists() and os.path.samestat(checked, self.path.stat()):
                raise

    def _check_alone(self) -> None:
        try:
            with closing(sqlite3.connect(self.path, timeout=self._lock_wait_s, isolation_level=None)) as connection:
                connection.execute("PRAGMA query_only = ON")
                self._check(connection)
        except sqlite3.DatabaseError as error:
            translated = self._translated(error)
            if isinstance(translated, StoreDamagedError):
                raise translated from error

    def _check(self, connection: sqlite3.Connection) -> None:
        """Raises StoreDamagedError. A damaged search index is none: it is made again where it is met."""
        verdicts = [str(verdict) for (verdict,) in connection.execute("PRAGMA quick_check(9)")]
        damage = [verdict for verdict in verdicts if verdict != "ok" and "FTS5" not in verdict]
        if damage:
            raise StoreDamagedError(f"{self.path} is damaged: {damage[0]}.")

    def _has_mended_index(self, error: sqlite3.DatabaseError, connection: sqlite3.Connection) -> bool:
        """A damaged search index costs no chat: it is made again from the texts, or done without.

        False: it was something else.
        """
        is_index = getattr(error, "sqlite_errorname", "") == "SQLITE_CORRUPT_VTAB" or _NO_INDEX in str(error)
        if not self.can_index or not is_index:
            return False
        try:
            for index in ("turn_index", "title_index"):
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
        except sqlite3.DatabaseError:
            self.can_index = False
            for trigger in SEARCH_TRIGGERS:
                connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            self._tell("The search index is damaged: searching reads every text, which is slower.")
        else:
            self._tell("The search index was damaged; it was rebuilt.")
        return True

    def _decoded(self, stored: bytes) -> str:
        """A text from the file; damaged bytes become U+FFFD."""
        try:
            return stored.decode()
        except UnicodeDecodeError:
            self._tell("A text in the chat database is damaged: \ufffd stands for what cannot be read.")
            return stored.decode("utf-8", "replace")

    def _connect(self) -> sqlite3.Connection:
        private_folder(self.path.parent)
        self._check_header()
        private_file(self.path)
        connection = sqlite3.connect(self.path, timeout=self._lock_wait_s, isolation_level=None)
        connection.text_factory = self._decoded
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            if self._checks_at_open:
                self._check(connection)
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
        if not self.path.exists():
            return
        with open_file(self.path) as file:
            header = file.read(len(_MAGIC))
        if header not in (b"", _MAGIC):
            raise StoreDamagedError(f"{self.path} is damaged: it does not begin like a database.")

    def _translated(self, error: sqlite3.DatabaseError) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(_LOCKED):
            return StoreLockedError("Another program holds the chat database.", "Try again when it has ended.")
        if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
            return ChatMissingError("The chat is no longer kept.", "It was deleted meanwhile.")
        if name.startswith(_DAMAGED) or "malformed" in str(error):
            return StoreDamagedError(f"{self.path} is damaged: {error}.")
        refusal = why_unwritable(self.path.parent)
        return self._unwritable(OSError(0, str(error)) if refusal is None else refusal)

    def _unwritable(self, error: OSError) -> StoreUnwritableError:
        return StoreUnwritableError(f"The chat database {self.path} cannot be written: {reason(error)}.", advice(error))
