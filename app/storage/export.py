"""Chats as files: Markdown to read, and JSON to keep, which `app.storage.chat_import` reads back.

The JSON: {"format": "moe-chat", "version": 1, "chats": [{chat_id, domain, ..., "turns": [{position, role, ...}]}]}; the
keys are those of ChatRecord and TurnRecord, the turns in order.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from app.formatting.fence import fenced
from app.formatting.sanitise import json_text, visible
from app.storage import answer_record
from app.storage.forest import grouped_versions, parents_first
from app.storage.records import (
    ASSISTANT,
    FAILED,
    PARTIAL,
    SHORT_ID,
    STOPPED,
    USER,
    Attachment,
    ChatRecord,
    TurnRecord,
    title_from,
)
from app.storage.store import ChatStore
from app.storage.system_errors import reason
from app.storage.words import moment
from engine.errors import MoeChatError

FORMAT, VERSION = "moe-chat", 1

_NAMES = {USER: "You", ASSISTANT: "moe-chat"}
_STATE_WORDS = {PARTIAL: "unfinished", STOPPED: "stopped", FAILED: "ended by an error"}


class ExportError(MoeChatError):
    """A file of chats cannot be written, read or understood."""

    title = "Chat file"


class KeptChat(NamedTuple):
    """A chat with all of its turns."""

    chat: ChatRecord
    turns: list[TurnRecord]

    @property
    def chat_id(self) -> str:
        """The chat's id."""
        return self.chat.chat_id

    @property
    def parent_chat_id(self) -> str | None:
        """The id of the chat it branched from."""
        return self.chat.parent_chat_id

    @property
    def title(self) -> str:
        """The title to show."""
        first = next((turn.text for turn in self.turns if turn.role == USER), "")
        return self.chat.title or title_from(first)


def kept_chat(store: ChatStore, chat_id: str) -> KeptChat | None:
    """A chat and its turns, from the store. Raises StoreError."""
    chat = store.chat(chat_id)
    return None if chat is None else KeptChat(chat, store.turns(chat_id))


def with_versions(store: ChatStore, chat_ids: Iterable[str]) -> list[KeptChat]:
    """The chats and all that branched from them or that they branched from, the oldest first. Raises StoreError."""
    wanted = set(chat_ids)
    found = [
        family for family in grouped_versions(store.chats()) if wanted.intersection(chat.chat_id for chat in family)
    ]
    return [KeptChat(chat, store.turns(chat.chat_id)) for family in found for chat in family]


def as_markdown(kept: KeptChat) -> str:
    """The chat to read: thinking folded, below each answer what it cost.

    Control characters are made visible, as a terminal that prints the file would obey them; JSON keeps every text.
    """
    chat = kept.chat
    parts = [f"# {kept.title}", f"{moment(chat.created_at)} · {chat.domain} · {chat.model}"]
    if chat.system_prompt:
        parts += ["## System", chat.system_prompt]
    for turn in kept.turns:
        parts += _turn_markdown(turn)
    return visible("\n\n".join(parts)) + "\n"


def as_json(chats: Iterable[KeptChat]) -> str:
    """Everything that is kept of the chats, as text to be read back. A chat stands behind its parent."""
    written = [
        {**asdict(kept.chat), "turns": [turn_json(turn) for turn in kept.turns]} for kept in parents_first(chats)
    ]
    return json_text({"format": FORMAT, "version": VERSION, "chats": written}) + "\n"


def turn_json(turn: TurnRecord) -> dict[str, object]:
    """A turn as it is written: without the ids, which are the database's own."""
    return {name: value for name, value in asdict(turn).items() if name not in ("chat_id", "turn_id")}


def write_file(path: Path, text: str) -> Path:
    """Write a new file whole or not at all; one that is there stays. Returns where it is. Raises ExportError."""
    path = path.expanduser().absolute()
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except FileExistsError as error:
        raise ExportError(f"{path} exists already.", "Name another file.") from error
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {reason(error)}.", "Name a file in a writable folder.") from error
    return path


def write_as_asked(
    chat: KeptChat, versions: Callable[[], Iterable[tuple[ChatRecord, list[TurnRecord]]]], asked: str
) -> Path:
    """Write a chat as `/export` is told to: `markdown` or `json`, and a file; either can be left out. JSON has every
    version. Returns where it is. Raises ExportError and StoreError."""
    kind, _, name = asked.partition(" ")
    if kind not in ("markdown", "json"):
        kind, name = ("json" if asked.endswith(".json") else "markdown"), asked
    is_json = kind == "json"
    path = Path(name.strip() or file_name(chat, ".json" if is_json else ".md"))
    others = (KeptChat(*other) for other in versions() if other[0].chat_id != chat.chat_id) if is_json else ()
    return write_file(path, as_json([chat, *others]) if is_json else as_markdown(chat))


def file_name(kept: KeptChat, suffix: str) -> str:
    """A name for the chat's file, such as `capital-of-france-3f2a91c4.md`: no sign that a shell would mind."""
    words = re.sub(r"[^\w]+", "-", kept.title.lower()).strip("-")[:40].strip("-")
    return f"{words or 'chat'}-{kept.chat.chat_id[:SHORT_ID]}{suffix}"


def _attachment_markdown(attachment: Attachment) -> str:
    summary = f"file: {html.escape(attachment.name)}"
    return f"<details><summary>{summary}</summary>\n\n{fenced(attachment.text)}\n\n</details>"


def _turn_markdown(turn: TurnRecord) -> list[str]:
    parts = [f"## {_NAMES.get(turn.role, turn.role)}"]
    if turn.thinking:
        parts.append(f"<details><summary>thinking</summary>\n\n{turn.thinking.strip()}\n\n</details>")
    parts += [_attachment_markdown(attachment) for attachment in turn.attachments]
    parts.append(turn.text.rstrip())
    notes = [*turn.markers]
    if turn.role == ASSISTANT:
        lines = [line for line in answer_record.kept_summaries(turn.stats) if line]
        notes += lines or [" · ".join(filter(None, (_STATE_WORDS.get(turn.state, ""), turn.mode_label)))]
    elif turn.state in _STATE_WORDS:
        notes.append(_STATE_WORDS[turn.state])
    return parts + [f"*{note}*" for note in notes if note]
