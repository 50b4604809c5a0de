"""`moe-chat chats bin` and `chats restore`: what was deleted, listed and restored."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from app.cli.arguments.chats import LAST
from app.cli.output.terminal_text import say, say_json, tell
from app.storage.bin import NotInBinError
from app.storage.records import SHORT_ID, Deletion
from app.storage.store import ChatStore
from app.storage.words import about_deletion


def list_bin(store: ChatStore, arguments: argparse.Namespace) -> int:
    """Print what can be restored, the newest deletion first."""
    deletions = store.bin.deletions()
    if arguments.json:
        say_json([asdict(deletion) for deletion in deletions])
        return 0
    for deletion in deletions:
        say(f"{deletion.deletion_id[:SHORT_ID]}  {deletion.title} · {about_deletion(deletion)}")
    if not deletions:
        tell("The bin is empty.")
    return 0


def restore(store: ChatStore, arguments: argparse.Namespace) -> int:
    """Restore one deletion. Raises NotInBinError and StoreError."""
    deletion = _deletion_of(store, arguments.deletion)
    restored = store.bin.restore(deletion.deletion_id)
    say(f"Restored “{deletion.title}”: {', '.join(chat_id[:SHORT_ID] for chat_id in restored.chat_ids)}")
    return 0


def _deletion_of(store: ChatStore, name: str) -> Deletion:
    """The deletion whose id `name` begins, or that of a chat whose id it begins; the newest for `last`."""
    deletions = store.bin.deletions()
    if name == LAST and deletions:
        return deletions[0]
    found = [deletion for deletion in deletions if name and deletion.deletion_id.startswith(name)]
    found = found or [deletion for deletion in deletions if name and deletion.chat_id.startswith(name)]
    if not found:
        raise NotInBinError(f"Nothing in the bin has the id {name!r}.", "List it: moe-chat chats bin")
    if len(found) > 1:
        ids = ", ".join(deletion.deletion_id[:SHORT_ID] for deletion in found)
        raise NotInBinError(f"{name!r} begins the ids of several deletions.", f"One of {ids}")
    return found[0]
