"""A copy of the chat database in memory, to read chats where the database itself cannot be opened.

SQLite needs to write beside a database even to read it (WAL mode), which a full disk and a read-only one do not allow.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from app.storage.migrations import has_fts5, migrate


def open_copy(path: Path, text_factory: Callable[[bytes], str]) -> sqlite3.Connection:
    """The database at `path` with what its log holds, migrated; an empty one where there is none.

    Takes its size on the temporary disk for a moment, and in memory. Raises OSError and sqlite3.DatabaseError.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        with tempfile.TemporaryDirectory(prefix="moe-chat-") as folder:
            for part in (path, path.with_name(f"{path.name}-wal")):
                if part.exists():
                    shutil.copyfile(part, Path(folder, part.name))
            with closing(sqlite3.connect(Path(folder, path.name))) as on_disk:
                on_disk.backup(copy)
        copy.text_factory = text_factory
        migrate(copy, can_index=has_fts5(copy))
    except BaseException:
        copy.close()
        raise
    return copy
