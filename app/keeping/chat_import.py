"""Chats read back from the JSON that `app.keeping.export` writes. A chat that is there is not imported twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from app.keeping.export import FORMAT, VERSION, ExportError, KeptChat, kept_chat, turn_json
from app.keeping.records import ASSISTANT, COMPLETE, FAILED, PARTIAL, STOPPED, USER, ChatRecord, TurnRecord, new_id
from app.keeping.store import ChatStore

_HINT = "Name a file that `moe-chat chats export --json` made."
_ROLES = (USER, ASSISTANT)
_STATES = (COMPLETE, PARTIAL, STOPPED, FAILED)
_KINDS: dict[type, str] = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
_Value = TypeVar("_Value", str, int, list, dict)  # type: ignore[type-arg]
_CHAT_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to."""

    new: tuple[str, ...] = ()
    """Ids of chats that were not there."""
    copies: tuple[str, ...] = ()
    """New ids of chats that were there with other turns: both versions are kept."""
    known: tuple[str, ...] = ()
    """Ids of chats that were there just so."""

    def __str__(self) -> str:
        kinds = (
            (self.new, "imported"),
            (self.copies, "imported as a copy: another version is there"),
            (self.known, "already there"),
        )
        told = [f"{len(ids)} {'chat' if len(ids) == 1 else 'chats'} {what}" for ids, what in kinds if ids]
        return ", ".join(told) or "There are no chats in it."


def read_file(path: Path) -> list[KeptChat]:
    """The chats in a file. Raises ExportError."""
    try:
        return read_json(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}.", _HINT) from error
    except UnicodeDecodeError as error:
        raise ExportError(f"{path} is not text in UTF-8.", _HINT) from error


def read_json(text: str) -> list[KeptChat]:
    """The chats in a text that `export.as_json` made. Raises ExportError, which names the place that is wrong."""
    try:
        document = _storable(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"The file is not JSON: {error}.", _HINT) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ExportError("The file holds no chats of moe-chat.", _HINT)
    if document.get("version") != VERSION:
        raise ExportError(
            f"The file has version {document.get('version')!r}; this moe-chat reads version {VERSION}.",
            "Read it with the moe-chat that wrote it, or a newer one.",
        )
    return [_chat(chat, f"chats[{number}]") for number, chat in enumerate(_take(document, "", "chats", list))]


def import_chats(store: ChatStore, chats: Iterable[KeptChat]) -> Imported:
    """Keep chats that are not there yet; each whole or not at all. Raises StoreError."""
    new, copies, known = [], [], []
    for kept in chats:
        there = kept_chat(store, kept.chat.chat_id)
        if there is None:
            new.append(kept.chat.chat_id)
        elif [turn_json(turn) for turn in there.turns] == [turn_json(turn) for turn in kept.turns]:
            known.append(kept.chat.chat_id)
            continue
        else:
            kept = _copy(kept)
            copies.append(kept.chat.chat_id)
        store.save_whole(kept.chat, kept.turns)
    return Imported(tuple(new), tuple(copies), tuple(known))


def _copy(kept: KeptChat) -> KeptChat:
    """The same chat under another id."""
    chat = replace(kept.chat, chat_id=new_id())
    return KeptChat(chat, [replace(turn, chat_id=chat.chat_id) for turn in kept.turns])


def _storable(document: object) -> object:
    """The document without lone surrogates, which JSON can hold and no database takes."""
    return json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))


def _chat(value: object, where: str) -> KeptChat:
    chat_id = _take(value, where, "chat_id", str)
    if not _CHAT_ID.fullmatch(chat_id):
        raise _wrong(f"{where}.chat_id", "an id")
    chat = ChatRecord(
        domain=_take(value, where, "domain", str),
        system_prompt=_take(value, where, "system_prompt", str),
        model=_take(value, where, "model", str),
        chat_id=chat_id,
        created_at=_moment(value, where),
        title=_take(value, where, "title", str),
        parent_chat_id=_take_or_none(value, where, "parent_chat_id", str),
        branched_at=_take_or_none(value, where, "branched_at", int),
    )
    turns = [
        _turn(turn, f"{where}.turns[{number}]", chat_id)
        for number, turn in enumerate(_take(value, where, "turns", list))
    ]
    if any(later.position <= earlier.position for earlier, later in pairwise(turns)):
        raise _wrong(f"{where}.turns", "in the order of their positions")
    return KeptChat(chat, turns)


def _turn(value: object, where: str, chat_id: str) -> TurnRecord:
    role, state = _take(value, where, "role", str), _take(value, where, "state", str)
    for text, key, known in ((role, "role", _ROLES), (state, "state", _STATES)):
        if text not in known:
            raise _wrong(f"{where}.{key}", f"one of {', '.join(known)}")
    markers = _take(value, where, "markers", list)
    if not all(isinstance(marker, str) for marker in markers):
        raise _wrong(f"{where}.markers", "a list of texts")
    return TurnRecord(
        chat_id,
        _take(value, where, "position", int),
        role,
        _take(value, where, "text", str),
        state,
        _take(value, where, "mode_label", str),
        _take_or_none(value, where, "stats", dict),
        markers,
        created_at=_moment(value, where),
        thinking=_take(value, where, "thinking", str),
    )


def _take(holder: object, where: str, key: str, kind: type[_Value]) -> _Value:
    """What an object of the file has at `key`, if it is of that kind. Raises ExportError."""
    if not isinstance(holder, dict):
        raise _wrong(where, _KINDS[dict])
    value = holder.get(key)
    is_odd_number = isinstance(value, int) and (isinstance(value, bool) or not 0 <= value < 2**31)
    if not isinstance(value, kind) or is_odd_number:
        raise _wrong(f"{where}.{key}".lstrip("."), _KINDS[kind])
    return value


def _take_or_none(holder: object, where: str, key: str, kind: type[_Value]) -> _Value | None:
    is_absent = isinstance(holder, dict) and holder.get(key) is None
    return None if is_absent else _take(holder, where, key, kind)


def _moment(holder: object, where: str) -> str:
    """A time, written so that kept times compare as texts."""
    written = _take(holder, where, "created_at", str)
    try:
        return datetime.fromisoformat(written).astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        raise _wrong(f"{where}.created_at", "a time such as 2026-01-31T12:00:00.000+00:00") from None


def _wrong(where: str, kind: str) -> ExportError:
    return ExportError(f"{where} in the file is not {kind}.", _HINT)
