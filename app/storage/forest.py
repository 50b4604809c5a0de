"""The links between chats: a chat may have branched from another, which is its parent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Linked(Protocol):
    """A chat as far as its links go."""

    @property
    def chat_id(self) -> str:
        """Its id."""

    @property
    def parent_chat_id(self) -> str | None:
        """The id of the chat it branched from."""


_Chat = TypeVar("_Chat", bound=Linked)


def parents_first(chats: Iterable[_Chat]) -> list[_Chat]:
    """The chats, each behind its parent, else in the order given.

    Links that form a circle, which only a damaged file has, are followed once.
    """
    given = list(chats)
    by_id: dict[str, _Chat] = {}
    for chat in given:
        by_id.setdefault(chat.chat_id, chat)
    ordered: dict[int, _Chat] = {}
    for chat in given:
        ancestors: dict[int, _Chat] = {}
        link: _Chat | None = chat
        while link is not None and id(link) not in ordered and id(link) not in ancestors:
            ancestors[id(link)] = link
            link = by_id.get(link.parent_chat_id or "")
        ordered |= {key: ancestors[key] for key in reversed(ancestors)}
    return list(ordered.values())


def grouped_versions(chats: Iterable[_Chat]) -> list[list[_Chat]]:
    """The chats, those together that are linked by however many links; all in the order given."""
    given = list(chats)
    neighbours: dict[str, list[str]] = {}
    for chat in given:
        if chat.parent_chat_id:
            neighbours.setdefault(chat.chat_id, []).append(chat.parent_chat_id)
            neighbours.setdefault(chat.parent_chat_id, []).append(chat.chat_id)
    number_of: dict[str, int] = {}
    for number, chat in enumerate(given):
        waiting = [chat.chat_id]
        while waiting:
            if (chat_id := waiting.pop()) not in number_of:
                number_of[chat_id] = number
                waiting += neighbours.get(chat_id, ())
    found: dict[int, list[_Chat]] = {}
    for chat in given:
        found.setdefault(number_of[chat.chat_id], []).append(chat)
    return list(found.values())


def version_ids(chats: Iterable[Linked], chat_id: str) -> list[str]:
    """The ids of every chat that is linked with `chat_id`; at least `chat_id` itself."""
    for family in grouped_versions(chats):
        ids = [chat.chat_id for chat in family]
        if chat_id in ids:
            return ids
    return [chat_id]
