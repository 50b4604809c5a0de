"""Versions of a turn: regenerating an answer, or asking a question differently, goes on in a branch of the chat.

Chats that branched from one another after the same turn are versions of what comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.storage.forest import version_ids
from app.storage.records import ChatRecord


def place_in_family(chats: Iterable[ChatRecord], chat_id: str) -> tuple[int, int]:
    """Which of the chats linked with it a chat is, by age, and of how many."""
    known = {chat.chat_id: chat for chat in chats}
    ids = [name for name in version_ids(known.values(), chat_id) if name in known]
    oldest_first = sorted(ids, key=lambda name: (known[name].created_at, name))
    return (oldest_first.index(chat_id) + 1, len(ids)) if chat_id in ids else (1, 1)


def versions_at(chats: Iterable[ChatRecord], chat_id: str, position: int) -> list[str]:
    """A chat for each version of the turn at `position`, the oldest first; for that of `chat_id`, itself."""
    known = {chat.chat_id: chat for chat in chats}
    if chat_id not in known:
        return [chat_id]
    before, own = _first_with(known, chat_id, position - 1), _first_with(known, chat_id, position)
    alike = [name for name in known if _first_with(known, name, position - 1) == before]
    versions = {_first_with(known, name, position) for name in alike}
    oldest_first = sorted(versions, key=lambda name: (known[name].created_at, name))
    return [chat_id if name == own else name for name in oldest_first]


def _first_with(known: Mapping[str, ChatRecord], chat_id: str, position: int) -> str:
    """The chat that first had the turns up to `position` of `chat_id`: what it branched from later does not count."""
    chat, passed = known[chat_id], {chat_id: None}
    while (parent := known.get(chat.parent_chat_id or "")) is not None and (
        chat.branched_at is not None and chat.branched_at >= position
    ):
        if parent.chat_id in passed:  # a circle, which only a damaged file has: all in it have the same first one
            circle = list(passed)[list(passed).index(parent.chat_id) :]
            return min(circle)
        passed[parent.chat_id] = None
        chat = parent
    return chat.chat_id
