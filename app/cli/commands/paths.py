"""Where everything lies and how much of the disk it takes: `moe-chat paths`, and what `moe-chat clean` frees."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.cli.output.terminal_text import say, say_json
from app.storage.bin import BIN_DAYS
from app.storage.database import StoreError
from app.storage.paths import AppPaths
from app.storage.store import ChatStore
from engine.checkpoint.catalogue import hub_cache
from engine.config import format_bytes

_MODEL_PREFIX = "models--"
_UNFINISHED = (".incomplete", ".part")
"""Suffixes of files of the hub's cache that have not arrived whole: those of the hub's library, and ours."""


@dataclass(frozen=True, slots=True)
class Place:
    """Something that takes room on the disk."""

    name: str
    """What `clean` calls it; a model of the hub's cache by its id."""
    about: str
    paths: tuple[Path, ...]
    used_bytes: int
    is_freed_by_default: bool = False
    """`clean` asks about it without being told its name."""


def used_bytes(path: Path) -> int:
    """Bytes that a file, or all in a folder, takes on the disk; links are not followed. What goes meanwhile is 0."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            with os.scandir(path) as entries:
                return sum(used_bytes(Path(entry.path)) for entry in entries)
        return path.lstat().st_blocks * 512
    return 0


def places(paths: AppPaths) -> list[Place]:
    """Everything that takes room, what can be made again first."""
    cache, hub = paths.cache_dir, hub_cache()
    arriving = (path for suffix in _UNFINISHED for path in hub.glob(f"{_MODEL_PREFIX}*/blobs/*{suffix}"))
    unfinished = (*cache.glob(".demo-building-*"), *arriving)
    logs = tuple(path for path in (paths.app_log, paths.engine_log) if path.exists())
    database = [paths.chats_db.with_name(paths.chats_db.name + suffix) for suffix in ("", "-wal", "-shm")]
    damaged = sorted(paths.data_dir.glob("chats.damaged-*"))
    found = [
        _place("downloads", "unfinished downloads, and what a killed build left", unfinished, is_default=True),
        _place("logs", "what the app and the engine wrote about themselves", logs, is_default=True),
        _place("demo", "the demo model; built again when it is used", cache.glob("demo-[0-9]*"), is_default=True),
        _place("profiles", "domain profiles; building them again takes minutes each", _existing([paths.profiles_dir])),
        _place("damaged", "chat databases that were damaged and moved aside", damaged),
        _bin(paths.chats_db),
        _place("chats", "every chat", _existing(database)),
    ]
    return [*found, *_hub_models(hub)]


def _place(name: str, about: str, paths: Iterable[Path], *, is_default: bool = False) -> Place:
    paths = tuple(paths)
    return Place(name, about, paths, sum(map(used_bytes, paths)), is_default)


def _bin(database: Path) -> Place:
    """What of the chat database was deleted, as far as it can be read."""
    size = 0
    if database.exists():
        with contextlib.suppress(StoreError), contextlib.closing(ChatStore(database, checks_at_open=False)) as store:
            size = store.bin.used_bytes()
    return Place("bin", f"deleted chats and turns; they go by themselves after {BIN_DAYS} days", (), size)


def _existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.exists())


def _hub_models(hub: Path) -> list[Place]:
    """The models in the hub's cache, the largest first; other programs use them, too."""
    found = [
        _place(
            folder.name.removeprefix(_MODEL_PREFIX).replace("--", "/"), "a model in the Hugging Face cache", [folder]
        )
        for folder in hub.glob(f"{_MODEL_PREFIX}*")
        if folder.is_dir()
    ]
    return sorted(found, key=lambda place: -place.used_bytes)


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat paths`: the place of everything, and how much it takes."""
    listed = (*AppPaths.from_environment().listed(), ("hub cache", hub_cache()))
    if arguments.json:
        say_json([{"name": name, "path": str(path), "used_bytes": _size_or_none(path)} for name, path in listed])
        return 0
    for name, path in listed:
        size = _size_or_none(path)
        say(f"{name:<12}{'–' if size is None else format_bytes(size):>10}  {path}")
    return 0


def _size_or_none(path: Path) -> int | None:
    """None where there is nothing. A database counts with its log."""
    if not path.exists():
        return None
    return used_bytes(path) + (used_bytes(path.with_name(f"{path.name}-wal")) if path.suffix == ".db" else 0)
