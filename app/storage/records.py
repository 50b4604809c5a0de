"""What is kept of a chat, and what a list of chats and a search tell about it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

USER, ASSISTANT = "user", "assistant"
"""Roles of a turn."""

COMPLETE, PARTIAL, STOPPED, FAILED = "complete", "partial", "stopped", "error"
"""States of a turn: whole; being written (or its writer died); stopped by the user; ended by an error."""

SHORT_ID = 8
"""Characters of an id that are shown; more are asked for where they are not enough."""

UNTITLED = "Untitled"
TITLE_LENGTH = 60
"""Characters of a title that is made from a question, at most."""


def new_id() -> str:
    """An id that no other instance makes."""
    return uuid.uuid4().hex


def now() -> str:
    """This moment in UTC, as ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def title_from(question: str) -> str:
    """A title made from a chat's first question: its words in one line, cut after a word where it is too long."""
    words = " ".join(question[: 20 * TITLE_LENGTH].split())
    if len(words) <= TITLE_LENGTH:
        return words or UNTITLED
    cut = words[:TITLE_LENGTH]
    at_word, _, _ = cut.rpartition(" ")
    return f"{at_word if len(at_word) > TITLE_LENGTH // 2 else cut[:-1]}…"


@dataclass(frozen=True, slots=True)
class KeptPreset:
    """The preset of a chat as it was when it was chosen, whatever becomes of its file."""

    name: str
    values: dict[str, object]
    """Values by the key of their setting, as JSON holds them. A file of chats may hold anything: they are checked where
    they are used."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that was sent with a question, as it was then."""

    name: str
    """As the question names it."""
    text: str


def searched_text(text: str, files: Iterable[Attachment]) -> str:
    """What is searched of a turn: its text, and the names and texts of its files."""
    return "\n".join([text, *(f"{file.name}\n{file.text}" for file in files)])


@dataclass(slots=True)
class ChatRecord:
    """One conversation. The system prompt is kept as it was, whatever becomes of the domain."""

    domain: str
    system_prompt: str
    model: str
    chat_id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=now)
    title: str = ""
    """What the user called it; empty: a title is made from the first question."""
    parent_chat_id: str | None = None
    """The chat it branched from; None once that is deleted, too. A branch holds copies of the turns they share."""
    branched_at: int | None = None
    """The position of the last turn shared with the parent."""
    preset: KeptPreset | None = None
    """The preset that was chosen for it."""


@dataclass(slots=True)
class TurnRecord:
    """One message of a chat."""

    chat_id: str
    position: int
    role: str
    text: str = ""
    state: str = COMPLETE
    mode_label: str = ""
    """What an answer is: exact, approximate, exact on approximate context."""
    stats: dict[str, object] | None = None
    """The record of an answer, JSON-serialisable."""
    markers: list[str] = field(default_factory=list)
    """What changed while the answer was written, such as the mode."""
    turn_id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=now)
    thinking: str = ""
    """What the model thought before an answer."""
    in_context: bool | None = None
    """Of a question: whether it and its answer are in the context of later ones; None: they are once it is answered."""
    attachments: tuple[Attachment, ...] = ()
    """Of a question: the files that were sent with it."""


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A line of the list of chats. `title` is the one to show; `updated_at` the time of its last turn."""

    chat_id: str
    title: str
    updated_at: str
    num_turns: int
    domain: str
    model: str
    parent_chat_id: str | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """What was deleted at once and can be restored: a chat with its versions, or turns of one."""

    deletion_id: str
    deleted_at: str
    chat_id: str
    """The newest of the chats that were deleted, or the chat that the turns were in."""
    is_chat: bool
    title: str
    """The chat's, or one made from the question that was deleted."""
    num_turns: int
    num_chats: int
    """Versions of the chat; 0 where only turns were deleted."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of text around what was found. `marks` are the (start, end) of what matched, in order."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """Where a chat is opened: at its end, or at the turn with `position`, where the texts `found` are marked."""

    chat_id: str
    position: int | None = None
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One place where a search matched; `turn` is None where it is the title."""

    chat: ChatSummary
    turn: TurnRecord | None
    snippet: Snippet
