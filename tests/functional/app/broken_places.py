"""Homes in which something cannot be read or written, for real."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.storage.records import USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore

CHAT_ID = "c0ffee00"

Place = Callable[[Path], contextlib.AbstractContextManager[Path]]


def _with_a_chat(home: Path) -> Path:
    store = ChatStore(home / "data" / "chats.db")
    store.save_whole(ChatRecord("general", "", "demo", chat_id=CHAT_ID), [TurnRecord(CHAT_ID, 0, USER, "before")])
    store.close()
    return home


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own of 2 MiB, with a home that has a chat."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield _with_a_chat(disk / "home")
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[Path]:
    """No byte is left."""
    with _small_disk(folder) as home:
        with contextlib.suppress(OSError), (home.parent / "filled").open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass
        yield home


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """Nothing can be written."""
    with _small_disk(folder) as home:
        subprocess.run(["mount", "-o", "remount,ro", str(home.parent)], check=True)
        yield home


@contextmanager
def absent(folder: Path) -> Iterator[Path]:
    """There is no home, and none can be made."""
    (folder / "file").touch()
    yield folder / "file" / "home"


def fifo(name: str) -> Place:
    """A FIFO where a file should be."""

    @contextmanager
    def place(folder: Path) -> Iterator[Path]:
        home = _with_a_chat(folder / "home")
        path = home / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        yield home

    return place


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Another program holds the database, and does not let go."""
    home = _with_a_chat(folder / "home")
    other = sqlite3.connect(home / "data" / "chats.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield home
    finally:
        other.close()


UNWRITABLE: dict[str, Place] = {
    "full disk": full,
    "read-only disk": read_only,
    "absent home": absent,
    "database is a FIFO": fifo("data/chats.db"),
    "locked database": locked,
}
"""Chats cannot be kept in any of these."""

USABLE: dict[str, Place] = {
    "settings are a FIFO": fifo("config/settings.toml"),
    "prompt history is a FIFO": fifo("data/prompts.jsonl"),
    "instance lock is a FIFO": fifo("data/instance.pid"),
    "log is a FIFO": fifo("log/moe-chat.log"),
}
"""Chats are kept all the same."""
