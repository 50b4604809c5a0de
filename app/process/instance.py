"""Which moe-chats run on the same chats: each shares a lock, so that every other one is known of."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from app.storage.paths import private_file, private_folder
from app.storage.system_errors import open_file


class InstanceLock:
    """Held for the life of the process; the system lets go of it whatever way the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def acquire(self) -> str:
        """Count as running, from the moment nobody holds the lock alone. Returns what to tell the user: empty, or that
        another instance runs."""
        try:
            lock_file = self._open()
        except OSError:
            return ""  # a read-only home: the chat store says so in its own words
        notice = ""
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock_file.truncate(0)
        except BlockingIOError:
            notice = f"Another moe-chat is running{_processes(lock_file)}: memory is then used twice."
        except OSError:
            lock_file.close()
            return ""
        with contextlib.suppress(OSError):  # on a full disk the lock is held all the same, without a number in it
            os.write(lock_file.fileno(), f"{os.getpid()}\n".encode())
        fcntl.flock(lock_file, fcntl.LOCK_SH)
        self._file = lock_file
        return notice

    def acquire_alone(self) -> bool:
        """Keep every other instance from starting; False: one runs. Raises OSError where that cannot be known."""
        lock_file = self._open()
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock_file.close()
            return False
        self._file = lock_file
        return True

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO:
        private_folder(self._path.parent)
        private_file(self._path)
        return open_file(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)


def _processes(lock_file: BinaryIO) -> str:
    """` (process 12, 34)`: who has noted itself and still lives."""
    lock_file.seek(0)
    noted = {int(line) for line in lock_file if line.strip().isdigit()} - {os.getpid()}
    living = [str(process) for process in sorted(noted) if _lives(process)]
    return f" (process {', '.join(living)})" if living else ""


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
