"""What was sent before, kept across runs: one JSON string a line, the newest last."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import BinaryIO

from app.formatting.sanitise import text_of, whole
from app.storage.system_errors import open_file

MAX_ENTRIES = 500
MAX_CHARACTERS = 50_000
"""What is longer is remembered while the app runs, and not kept."""
MAX_BYTES = 2 * 1024**2
_TRIMMED_BYTES = MAX_BYTES // 2
"""A file above the most is cut to its newest lines within this, so that it is not cut again at once."""


class PromptHistory:
    """Texts in the order they were sent. `path` None: for this run only. A file that cannot be used is done without."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.texts = _read(path) if path is not None else []

    def add(self, text: str) -> None:
        """Remember a text, unless it was the last one, too."""
        if self.texts and self.texts[-1] == text:
            return
        self.texts.append(text)
        del self.texts[:-MAX_ENTRIES]
        if self._path is not None and len(text) <= MAX_CHARACTERS:
            with contextlib.suppress(OSError):
                _append(self._path, json.dumps(text) + "\n")


def _read(path: Path) -> list[str]:
    texts = []
    with contextlib.suppress(OSError), open_file(path) as file:
        for line in file:
            with contextlib.suppress(ValueError):
                if isinstance(text := json.loads(text_of(line)), str):
                    texts.append(whole(text))
    return texts[-MAX_ENTRIES:]


def _append(path: Path, line: str) -> None:
    """Add a line to what this and other instances wrote. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as file:
        file.write(line.encode())
        file.flush()
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            file.seek(0)
            _replace(path, _newest(file.readlines()))


def _locked(path: Path) -> BinaryIO:
    """The file, locked until it is closed; never one that another instance has just replaced. Raises OSError."""
    while True:
        file = open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()


def _newest(lines: list[bytes]) -> bytes:
    room, first = _TRIMMED_BYTES, len(lines)
    while first > 0 and len(lines[first - 1]) <= room:
        first -= 1
        room -= len(lines[first])
    return b"".join(lines[max(first, len(lines) - MAX_ENTRIES) :])


def _replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
