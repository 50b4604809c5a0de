"""`moe-chat clean`: says what takes how much disk space, and frees it after asking."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from app.cli.commands.paths import Place, places, used_bytes
from app.cli.output.terminal_text import confirmed, say, say_json, tell
from app.cli.usage import UsageError
from app.formatting.figures import counted
from app.process.instance import InstanceLock
from app.storage.paths import AppPaths
from app.storage.store import ChatStore
from engine.config import format_bytes
from engine.errors import MoeChatError

_NEEDED_BY_A_CHAT = ("demo", "profiles", "chats", "logs")
"""What a running moe-chat uses."""


class CleanError(MoeChatError):
    """Something cannot be freed."""

    title = "Clean"


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat clean`; returns the exit code. Raises UsageError and CleanError."""
    paths = AppPaths.from_environment()
    found = places(paths)
    if arguments.list:
        _list(found, is_json=arguments.json)
        return 0
    if arguments.json:
        raise UsageError("--json prints what is there; it goes with --list.", "Add --list.")
    chosen = _chosen(found, arguments.what)
    if not arguments.what:
        _list(found, is_json=False)
    freed_bytes = sum(_free(place, paths, is_asked=not arguments.yes) for place in chosen if place.used_bytes)
    say(f"{format_bytes(freed_bytes)} freed.")
    return 0


def _list(found: list[Place], *, is_json: bool) -> None:
    if is_json:
        say_json([{**asdict(place), "paths": [str(path) for path in place.paths]} for place in found])
        return
    width = max(len(place.name) for place in found)
    for place in found:
        say(f"{place.name:<{width}}  {format_bytes(place.used_bytes):>10}  {place.about}")


def _chosen(found: list[Place], names: list[str]) -> list[Place]:
    """The places of those names; without names, what may be asked about. Raises UsageError."""
    if not names:
        return [place for place in found if place.is_freed_by_default]
    by_name = {place.name: place for place in found}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise UsageError(f"There is nothing called {unknown[0]!r} to free.", f"Choose from {', '.join(by_name)}.")
    return [by_name[name] for name in dict.fromkeys(names)]


def _free(place: Place, paths: AppPaths, *, is_asked: bool) -> int:
    """Free a place once it is confirmed; returns the bytes that came free. Raises UsageError and CleanError."""
    about = f"{place.name} ({format_bytes(place.used_bytes)}: {_details(place, paths)})"
    if is_asked and not confirmed(f"Free {about}?"):
        return 0
    if place.name == "bin":
        return _empty_bin(paths)
    if place.name not in _NEEDED_BY_A_CHAT:
        return sum(_remove(path) for path in place.paths)
    lock = InstanceLock(paths.instance_lock)
    try:
        if not lock.acquire_alone():
            tell(f"{place.name}: a moe-chat is running and uses it; quit that first.")
            return 0
        return sum(_remove(path) for path in place.paths)
    except OSError as error:
        raise CleanError(f"{paths.instance_lock} cannot be locked: {error.strerror}.", "Check who owns it.") from error
    finally:
        lock.release()


def _details(place: Place, paths: AppPaths) -> str:
    """What exactly would go."""
    if place.name == "chats":
        with contextlib.closing(ChatStore(paths.chats_db)) as store:
            return f"{counted(store.num_chats(), 'chat')}, which cannot be undone"
    return place.about


def _empty_bin(paths: AppPaths) -> int:
    """Delete for good what is in the bin; returns the bytes that came free. Raises StoreError."""
    before = used_bytes(paths.chats_db)
    with contextlib.closing(ChatStore(paths.chats_db)) as store:
        store.bin.empty()
        store.compact()
    return max(0, before - used_bytes(paths.chats_db))


def _remove(path: Path) -> int:
    """Remove a file or a folder; returns the bytes that came free: none where another program is at work on it."""
    before = used_bytes(path)
    try:
        with _claimed(path) as is_ours:
            if not is_ours:
                tell(f"{path.name}: another program is writing it.")
                return 0
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise CleanError(f"{path} cannot be removed: {error.strerror}.", "Check who owns it.") from error
    return before


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[bool]:
    """Hold the lock that a download or a build of `path` holds, if there is such a lock; False: it is held."""
    if path.name.startswith(".demo-building-"):
        lock_path = path.with_name("demo.lock")
    elif path.suffix in (".incomplete", ".part"):
        repository = path.parent.parent
        lock_path = repository.parent / ".locks" / repository.name / f"{path.name.split('.')[0]}.lock"
    else:
        yield True
        return
    if not lock_path.exists():
        yield True
        return
    with lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
