"""Telling a second running instance from the first, by a locked file that holds the first one's process id."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


class InstanceLock:
    """Held for the life of the process; the system lets go of it whatever way the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> str:
        """Take the lock. Returns what to tell the user: empty, or that another instance runs."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock_file = self._path.open("a+", encoding="utf-8")
        except OSError:
            return ""  # a read-only home: the chat store says so in its own words
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock_file.seek(0)
            owner = lock_file.read().strip()
            lock_file.close()
            return f"Another moe-chat is running{f' (process {owner})' if owner else ''}: memory is then used twice."
        lock_file.seek(0)
        lock_file.truncate()
        lock_file.write(str(os.getpid()))
        lock_file.flush()
        self._file = lock_file
        return ""

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None
