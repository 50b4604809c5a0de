"""What can be checked of the app without its engine: terminal, settings, disk, and where chats are kept."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.process.instance import InstanceLock
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.store import ChatStore
from app.storage.system_errors import advice, reason, why_unwritable
from engine.commands.model_menu import list_models
from engine.config import format_bytes
from engine.errors import MoeChatError

OK, WARN, FAIL = "ok", "warn", "fail"

_LITTLE_DISK_BYTES = 100 * 10**6
_LOCK_WAIT_S = 2.0
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    verdict: str
    """ok, warn or fail."""
    found: str
    advice: str = ""
    """What to do about it."""


def self_checks(paths: AppPaths, settings: Settings) -> Iterator[Check]:
    """Everything that does not need the engine; none of it raises."""
    yield Check("python", OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield _terminal()
    yield _settings(settings)
    yield from _chats(paths)
    yield from _disk(paths)
    yield _instance(paths)
    yield _models(settings)


def _terminal() -> Check:
    if not sys.stdout.isatty():
        return Check("terminal", OK, "none: the output goes elsewhere")
    size, term = shutil.get_terminal_size(), os.environ.get("TERM", "")
    colours = "NO_COLOR is set" if os.environ.get("NO_COLOR") else os.environ.get("COLORTERM") or "256 colours or fewer"
    found = f"{size.columns}x{size.lines}, TERM={term or 'unset'}, {colours}"
    if term in ("", "dumb"):
        return Check("terminal", WARN, found, "Nothing can be drawn on it; use moe-chat --plain.")
    if size.columns < 60 or size.lines < 16:
        return Check("terminal", WARN, found, "The panels need 60x16 at least; the chat works.")
    return Check("terminal", OK, found)


def _settings(settings: Settings) -> Check:
    path = settings.file.path
    if settings.problems:
        advice = f"Edit {path}, or change them in the app's settings."
        return Check("settings", WARN, " ".join(settings.problems), advice)
    return Check("settings", OK, str(path) if path.exists() else "the defaults")


def _chats(paths: AppPaths) -> Iterator[Check]:
    folder = _existing(paths.data_dir)
    refusal = why_unwritable(folder)
    if refusal is not None:
        yield Check("chats", FAIL, f"{folder} cannot be written: {reason(refusal)}.", advice(refusal))
    elif paths.chats_db.exists():
        yield from _database(paths.chats_db)
    else:
        yield Check("chats", OK, f"none yet; they will be kept in {paths.chats_db}")


def _database(path: Path) -> Iterator[Check]:
    store = ChatStore(path, lock_wait_s=_LOCK_WAIT_S)
    try:
        store.open()
        yield Check("chats", OK, f"{store.num_chats()} in {path}")
        if not store.can_index:
            hint = "Use a Python whose SQLite has FTS5."
            yield Check("search", WARN, "SQLite has no full-text search: every text is read, which is slow.", hint)
    except MoeChatError as error:
        yield Check("chats", FAIL, error.message, error.hint or "moe-chat moves it aside and begins a new one.")
    finally:
        store.close()


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _disk(paths: AppPaths) -> Iterator[Check]:
    """Said only where there is little: the engine looks at the disks of the models."""
    folder = _existing(paths.data_dir)
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < _LITTLE_DISK_BYTES:
        advice = "moe-chat clean says what takes room, and frees it."
        yield Check("disk", WARN, f"{format_bytes(free_bytes)} free at {folder}, where chats are kept", advice)


def _instance(paths: AppPaths) -> Check:
    lock = InstanceLock(paths.instance_lock)
    try:
        second = lock.acquire()
    finally:
        lock.release()
    return (
        Check("instances", WARN, second, "Leave the other one first.")
        if second
        else Check("instances", OK, "none runs")
    )


def _models(settings: Settings) -> Check:
    """The models on this machine, the demo aside."""
    _, *entries = list_models(settings.model_folders(), settings.config_of_others())
    unusable = [entry for entry in entries if not entry.is_supported]
    if not entries:
        return Check("models", OK, "the demo alone: none in known folders, the Hugging Face cache, LM Studio or Ollama")
    found = f"{len(entries)} on this machine beside the demo, {len(entries) - len(unusable)} of which can be run"
    if not unusable:
        return Check("models", OK, found)
    listed = "; ".join(f"{entry.name}: {entry.reason}" for entry in unusable[:_MOST_NAMED])
    more = f"; and {len(unusable) - _MOST_NAMED} more" if len(unusable) > _MOST_NAMED else ""
    return Check("models", OK, f"{found}. Not: {listed}{more}", "moe-chat models lists them all.")
