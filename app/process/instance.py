"""Detects other running instances: all hold a shared lock on one file, which lists their process ids."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from app.storage.paths import private_file, private_folder
from app.storage.system_errors import open_file


class InstanceLock:
    """A lock file held for the life of the process. The system releases it however the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def acquire(self) -> str:
        """Register this instance; waits while another one holds the lock exclusively. Returns a notice for the user:
        empty, or that another instance runs."""
        try:
            lock_file = self._open()
        except OSError:
            return ""  # a read-only home: the chat store says so in its own words
        notice = ""
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock_file.truncate(0)
        except BlockingIOError:
            notice = f"Another moe-chat is running{_processes(lock_file)}; each takes its own memory."
        except OSError:
            lock_file.close()
            return ""
        with contextlib.suppress(OSError):  # on a full disk the lock is held all the same, without a number in it
            os.write(lock_file.fileno(), f"{os.getpid()}\n".encode())
        fcntl.flock(lock_file, fcntl.LOCK_SH)
        self._file = lock_file
        return notice

    def acquire_alone(self) -> bool:
        """Hold the lock exclusively, so that no other instance starts; False: one runs. Raises OSError."""
        lock_file = self._open()
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock_file.close()
            return False
        self._file = lock_file
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO:
        private_folder(self._path.parent)
        private_file(self._path)
        return open_file(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)


def _processes(lock_file: BinaryIO) -> str:
    """` (process 12, 34)`: the listed processes that are still alive."""
    lock_file.seek(0)
    noted = {int(line) for line in lock_file if line.strip().isdigit()} - {os.getpid()}
    living = [str(process) for process in sorted(noted) if _is_alive(process)]
    return f" (process {', '.join(living)})" if living else ""


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
