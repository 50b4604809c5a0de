"""Rows of the database as records. A row may be damaged: what of it can be read is read, and what cannot is said.

A record without an id or a place cannot be used: such a row is None. Anything else that is damaged costs itself only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from app.storage.records import (
    ASSISTANT,
    COMPLETE,
    FAILED,
    PARTIAL,
    SHORT_ID,
    STOPPED,
    USER,
    Attachment,
    ChatRecord,
    ChatSummary,
    KeptPreset,
    TurnRecord,
    searched_text,
    title_from,
)

CHAT_COLUMNS = "domain, system_prompt, model, chat_id, created_at, title, parent_chat_id, branched_at, preset"
TURN_COLUMNS = (
    "chat_id, position, role, text, state, mode_label, stats, markers, turn_id, created_at, thinking, in_context,"
    " attachments"
)

_ID = re.compile(r"[^\x00-\x20\ufffd]+")
_STATES = (COMPLETE, PARTIAL, STOPPED, FAILED)
_Record = TypeVar("_Record")
_NO_TIME = "1970-01-01T00:00:00.000+00:00"


class Read(NamedTuple, Generic[_Record]):
    """A row: its record, if it can be used, and what of it could not be read; empty: nothing."""

    record: _Record | None
    problem: str = ""


def text_of(value: object) -> str:
    """A value of a text column. Damaged, it may be bytes, a number or NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def chat_of(row: Sequence[object]) -> Read[ChatRecord]:
    """A row of CHAT_COLUMNS."""
    domain, system_prompt, model, chat_id, created_at, title, parent_chat_id, branched_at, preset = row
    if not _is_id(chat_id):
        return Read(None, "A chat cannot be read: its id is damaged.")
    assert isinstance(chat_id, str)
    chat = ChatRecord(
        text_of(domain),
        text_of(system_prompt),
        text_of(model),
        chat_id,
        _time_of(created_at),
        text_of(title),
        parent_chat_id if isinstance(parent_chat_id, str) else None,
        branched_at if isinstance(branched_at, int) else None,
        preset_of(_json_of(preset, None)),
    )
    is_damaged = any(map(_is_bytes, (domain, system_prompt, model, title)))
    is_damaged |= preset is not None and chat.preset is None
    return Read(chat, f"Parts of chat {chat_id[:SHORT_ID]} cannot be read." if is_damaged else "")


def turn_of(row: Sequence[object]) -> Read[TurnRecord]:
    """A row of TURN_COLUMNS."""
    chat_id, position, role, text, state, mode_label, stats, markers, turn_id, created_at, thinking, *more = row
    in_context, attached = more
    of_chat = f"of chat {chat_id[:SHORT_ID]}" if isinstance(chat_id, str) else "of a chat"
    is_usable = _is_id(chat_id) and _is_id(turn_id) and isinstance(position, int) and position >= 0
    if not is_usable or role not in (USER, ASSISTANT):
        return Read(None, f"A turn {of_chat} cannot be read.")
    assert isinstance(chat_id, str)
    assert isinstance(turn_id, str)
    assert isinstance(position, int)
    kept_stats, kept_markers = _json_of(stats, None), _json_of(markers, [])
    attachments = attachments_of(_json_of(attached, []))
    is_whole = (kept_stats is None or isinstance(kept_stats, dict)) and _is_texts(kept_markers) and state in _STATES
    turn = TurnRecord(
        chat_id,
        position,
        str(role),
        text_of(text),
        str(state) if state in _STATES else PARTIAL,
        text_of(mode_label),
        kept_stats if isinstance(kept_stats, dict) else None,
        list(kept_markers) if isinstance(kept_markers, list) and _is_texts(kept_markers) else [],
        turn_id,
        _time_of(created_at),
        text_of(thinking),
        bool(in_context) if isinstance(in_context, int) else None,
        attachments or (),
    )
    is_whole = is_whole and attachments is not None and not any(map(_is_bytes, (text, mode_label, thinking)))
    return Read(turn, "" if is_whole else f"Parts of turn {position + 1} {of_chat} cannot be read.")


def preset_of(value: object) -> KeptPreset | None:
    """What JSON says of a chat's preset; None: nothing that can be used."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    values = value.get("values")
    return KeptPreset(value["name"], dict(values)) if isinstance(values, dict) else None


def preset_json(preset: KeptPreset | None) -> str | None:
    """As `preset_of` reads it."""
    return None if preset is None else json.dumps(asdict(preset))


def attachments_of(value: object) -> tuple[Attachment, ...] | None:
    """What JSON says of a turn's attachments; None: nothing that can be used."""
    if not isinstance(value, list):
        return None
    attachments = []
    for part in value:
        name, text = (part.get("name"), part.get("text")) if isinstance(part, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(text, str):
            return None
        attachments.append(Attachment(name, text))
    return tuple(attachments)


def attachments_json(attachments: Sequence[Attachment]) -> str | None:
    """As `attachments_of` reads it; None: there are none."""
    return json.dumps([asdict(attachment) for attachment in attachments]) if attachments else None


def searched_text_of(text: object, attached: object) -> str:
    """What is searched of a turn; of a title, which has no files, the title."""
    return searched_text(text_of(text), attachments_of(_json_of(attached, [])) or ())


def summary_of(row: Sequence[object]) -> ChatSummary | None:
    """A row of `chat_id, title, question, updated_at, num_turns, domain, model, parent_chat_id`; None without an id."""
    chat_id, title, question, updated_at, num_turns, domain, model, parent_chat_id = row
    if not _is_id(chat_id):
        return None
    return ChatSummary(
        str(chat_id),
        text_of(title) or title_from(text_of(question)),
        _time_of(updated_at),
        num_turns if isinstance(num_turns, int) else 0,
        text_of(domain),
        text_of(model),
        parent_chat_id if isinstance(parent_chat_id, str) else None,
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _time_of(value: object) -> str:
    """A kept time; the beginning of time where it cannot be read, so that lists stay in order."""
    try:
        datetime.fromisoformat(text_of(value))
    except ValueError:
        return _NO_TIME
    return text_of(value)


def _json_of(value: object, nothing: object) -> object:
    """The value of a JSON column; an Ellipsis where it is damaged."""
    if value is None:
        return nothing
    try:
        return json.loads(text_of(value))
    except (ValueError, RecursionError):
        return ...
