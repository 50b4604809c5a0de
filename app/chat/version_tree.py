"""The versions of a chat as a tree: each below the one that it branched from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.storage.forest import parents_first
from app.storage.records import USER, ChatRecord, TurnRecord

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
    """A row for each of the chats, which are linked. A circle of links is cut where it is met first."""
    turns_of = {chat.chat_id: turns for chat, turns in kept}
    by_age = sorted((chat for chat, _ in kept), key=lambda chat: (chat.created_at, chat.chat_id))
    number_of = {chat.chat_id: number for number, chat in enumerate(by_age, 1)}
    children: dict[str | None, list[ChatRecord]] = {}
    placed: set[str] = set()
    for chat in parents_first(by_age):
        children.setdefault(chat.parent_chat_id if chat.parent_chat_id in placed else None, []).append(chat)
        placed.add(chat.chat_id)
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


def _row(chat: ChatRecord, turns: list[TurnRecord], lines: str, number: int) -> VersionRow:
    shared = -1 if chat.parent_chat_id is None or chat.branched_at is None else chat.branched_at
    own = next((turn for turn in turns if turn.position > shared), None)
    text = " ".join(own.text[:_SHOWN].split()) if own is not None else ""
    updated_at = max([turn.created_at for turn in turns], default=chat.created_at)
    is_answer = own is not None and own.role != USER
    return VersionRow(chat.chat_id, lines, number, text, is_answer, len(turns), updated_at)
