"""Versions of a turn: regenerating an answer, or asking a question differently, goes on in a branch of the chat.

Chats that branched from one another after the same turn are versions of what comes next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.storage.forest import parents_first, version_ids
from app.storage.records import USER, ChatRecord, TurnRecord


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


_SHOWN = 200
"""Characters of a text that are looked at."""


class VersionRow(NamedTuple):
    """One version."""

    chat_id: str
    lines: str
    """What leads to it from the one above, such as `│  └─ `."""
    number: int
    """Which version it is, by age."""
    begins: str
    """What it has in place of its parent's, in a line."""
    is_answer: bool
    """That is an answer."""
    num_turns: int
    updated_at: str


def version_rows(kept: Sequence[tuple[ChatRecord, list[TurnRecord]]]) -> list[VersionRow]:
    """A row for each of the chats, which are linked: below the one that it shares its beginning with.

    A circle of links is cut where it is met first.
    """
    turns_of = {chat.chat_id: turns for chat, turns in kept}
    by_age = sorted((chat for chat, _ in kept), key=lambda chat: (chat.created_at, chat.chat_id))
    number_of = {chat.chat_id: number for number, chat in enumerate(by_age, 1)}
    children: dict[str | None, list[ChatRecord]] = {}
    placed: dict[str, ChatRecord] = {}
    for chat in parents_first(by_age):
        children.setdefault(_above(placed, chat), []).append(chat)
        placed[chat.chat_id] = chat
    rows: list[VersionRow] = []

    waiting = [(chat, "", "") for chat in reversed(children.get(None, []))]
    while waiting:
        chat, lines, below = waiting.pop()
        rows.append(_row(chat, turns_of[chat.chat_id], lines, number_of[chat.chat_id]))
        branches = sorted(
            children.get(chat.chat_id, []), key=lambda branch: (branch.branched_at or 0, branch.created_at)
        )
        for branch in reversed(branches):
            is_last = branch is branches[-1]
            waiting.append((branch, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")))
    return rows


def _above(placed: Mapping[str, ChatRecord], chat: ChatRecord) -> str | None:
    """The chat that the last shared turn was written in: that of a branch may be its parent's."""
    above = placed.get(chat.parent_chat_id or "")
    for _ in placed:  # a circle is not gone round for ever
        further = placed.get(above.parent_chat_id or "") if above is not None else None
        if above is None or further is None or not _is_shared(above, chat.branched_at):
            break
        above = further
    return None if above is None else above.chat_id


def _is_shared(chat: ChatRecord, position: int | None) -> bool:
    """Whether a chat has what stands at a position from its parent."""
    return position is not None and chat.branched_at is not None and position <= chat.branched_at


def _row(chat: ChatRecord, turns: list[TurnRecord], lines: str, number: int) -> VersionRow:
    shared = -1 if chat.parent_chat_id is None or chat.branched_at is None else chat.branched_at
    own = next((turn for turn in turns if turn.position > shared), None)
    text = " ".join(own.text[:_SHOWN].split()) if own is not None else ""
    updated_at = max([turn.created_at for turn in turns], default=chat.created_at)
    is_answer = own is not None and own.role != USER
    return VersionRow(chat.chat_id, lines, number, text, is_answer, len(turns), updated_at)
