"""A chat of another program as a tree of messages, and as chats of this one: a path to each end, linked as branches.

What cannot be taken over is counted by kind, to be said.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from app.formatting.sanitise import whole
from app.storage.export import KeptChat
from app.storage.records import ASSISTANT, USER, Attachment, ChatRecord, TurnRecord

DOMAIN = "general"
"""Of every chat that is taken over."""
MAX_VERSIONS = 200
"""Of one chat; each holds copies of what it shares with others."""
_MILLISECONDS_FROM = 1e11
_NO_TIME = 0.0
_TITLE_CHARACTERS = 200


@dataclass(slots=True)
class Message:
    """One message. `role` other than USER and ASSISTANT: a link between others, without a turn of its own."""

    message_id: str
    parent_id: str | None
    role: str = ""
    text: str = ""
    thinking: str = ""
    created_at: float = _NO_TIME
    attachments: tuple[Attachment, ...] = ()


@dataclass(slots=True)
class MessageTree:
    """One chat of another program."""

    program: str
    chat_id: str
    title: str = ""
    created_at: float = _NO_TIME
    model: str = ""
    system_prompt: str = ""
    messages: dict[str, Message] = field(default_factory=dict)
    current_id: str | None = None
    """The message that the other program showed last."""
    left_out: Counter[str] = field(default_factory=Counter)
    """What is not taken over, by its name in the plural."""

    def add(self, message: Message) -> None:
        """Put a message into the tree, unless one of its id is there."""
        self.messages.setdefault(message.message_id, message)


class _Turn(NamedTuple):
    """A question, or what answers it, which may be several messages."""

    ids: tuple[str, ...]
    role: str
    messages: tuple[Message, ...]


def chats(tree: MessageTree) -> list[KeptChat]:
    """The chats of a tree: the one with its current message first, then a branch for every other end.

    Adds to what the tree left out, and cuts circles of links.
    """
    _cut_circles(tree)
    ends = _ends(tree)
    if len(ends) > MAX_VERSIONS:
        tree.left_out["versions"] += len(ends) - MAX_VERSIONS
    made: list[KeptChat] = []
    first_in: dict[tuple[str, ...], KeptChat] = {}
    for end in ends[:MAX_VERSIONS]:
        turns = _turns(_path(tree, end))
        shared = next((number for number, turn in enumerate(turns) if turn.ids not in first_in), len(turns))
        if shared == len(turns):
            continue  # nothing of its own
        parent = first_in[turns[shared - 1].ids] if shared else next(iter(made), None)
        kept = _chat(tree, end, turns, shared, parent)
        made.append(kept)
        first_in |= {turn.ids: kept for turn in turns[shared:]}
    return made


def _cut_circles(tree: MessageTree) -> None:
    """Let a message of each circle of links follow nothing, so that every message is below a first one."""
    is_below: set[str] = set()
    for message in tree.messages.values():
        way: dict[str, Message] = {}
        here: Message | None = message
        while here is not None and here.message_id not in is_below and here.message_id not in way:
            way[here.message_id] = here
            here = tree.messages.get(here.parent_id or "")
        if here is not None and here.message_id in way:
            here.parent_id = None
        is_below |= way.keys()


def _ends(tree: MessageTree) -> list[str]:
    """The messages that nothing follows: that of the current path first, the others the newest first."""
    following: dict[str, list[str]] = {}
    for message in tree.messages.values():
        following.setdefault(message.parent_id or "", []).append(message.message_id)
    ends = [message_id for message_id in tree.messages if message_id not in following]
    ends.sort(key=lambda message_id: tree.messages[message_id].created_at, reverse=True)
    end = tree.current_id or ""
    while end in following:
        end = max(following[end], key=lambda message_id: tree.messages[message_id].created_at)
    return [end, *(other for other in ends if other != end)] if end in tree.messages else ends


def _path(tree: MessageTree, end: str) -> list[Message]:
    path: list[Message] = []
    message = tree.messages.get(end)
    while message is not None:
        path.append(message)
        message = tree.messages.get(message.parent_id or "")
    return path[::-1]


def _turns(path: Iterable[Message]) -> list[_Turn]:
    """Questions and answers; messages of an answer that follow one another, as around the use of a tool, are one."""
    turns: list[_Turn] = []
    for message in path:
        if message.role not in (USER, ASSISTANT) or not (message.text.strip() or message.thinking.strip()):
            continue
        if turns and turns[-1].role == message.role == ASSISTANT:
            last = turns.pop()
            turns.append(_Turn((*last.ids, message.message_id), ASSISTANT, (*last.messages, message)))
        else:
            turns.append(_Turn((message.message_id,), message.role, (message,)))
    return turns


def _chat(tree: MessageTree, end: str, turns: list[_Turn], shared: int, parent: KeptChat | None) -> KeptChat:
    """The chat of one path, which has its first `shared` turns from a parent."""
    own_since = turns[shared].messages[0].created_at if parent is not None else _NO_TIME
    chat = ChatRecord(
        domain=DOMAIN,
        system_prompt=whole(tree.system_prompt.strip()),
        model=whole(tree.model or tree.program),
        chat_id=_id(tree, "" if parent is None else end),
        created_at=moment(max(tree.created_at, own_since)),
        title=whole(" ".join(tree.title.split()))[:_TITLE_CHARACTERS],
    )
    records, position = [], 0
    for turn in turns:
        # A question stands at an even place, its answer behind it; one that is missing leaves its place free.
        position += position % 2 if turn.role == USER else 1 - position % 2
        records.append(_record(chat.chat_id, position, turn))
        position += 1
    if parent is not None:
        chat.parent_chat_id = parent.chat_id
        chat.branched_at = records[shared - 1].position if shared else -1
    return KeptChat(chat, records)


def _record(chat_id: str, position: int, turn: _Turn) -> TurnRecord:
    def joined(texts: Iterable[str]) -> str:
        return whole("\n\n".join(text.strip("\n") for text in texts if text.strip()))

    return TurnRecord(
        chat_id,
        position,
        turn.role,
        joined(message.text for message in turn.messages),
        created_at=moment(turn.messages[0].created_at),
        thinking=joined(message.thinking for message in turn.messages),
        attachments=tuple(attachment for message in turn.messages for attachment in message.attachments),
    )


def _id(tree: MessageTree, end: str) -> str:
    """The same for the same chat of the same program, so that a file read again finds it."""
    origin = f"{tree.program}\0{tree.chat_id}\0{end}"
    return hashlib.blake2b(origin.encode("utf-8", "replace"), digest_size=16).hexdigest()


# What the files of all programs have in common


def seconds(value: object) -> float:
    """A time in seconds or milliseconds since 1970, as seconds; 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return _NO_TIME
    return float(value / 1000 if value > _MILLISECONDS_FROM else value)


def moment(at: float) -> str:
    """A time as it is kept."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC).isoformat(timespec="milliseconds")


def text_at(holder: Mapping[str, Any], *keys: str) -> str:
    """The first of these that is a text; empty: none is."""
    return next((holder[key] for key in keys if isinstance(holder.get(key), str)), "")


def dict_at(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    """What is there, if it is an object; else an empty one."""
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def list_at(holder: Mapping[str, Any], key: str) -> list[Any]:
    """What is there, if it is a list; else an empty one."""
    value = holder.get(key)
    return value if isinstance(value, list) else []
