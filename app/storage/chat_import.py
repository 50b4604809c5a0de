"""Chats read back from the JSON that `app.storage.export` writes. A chat that is there is not imported twice.

What differs from the chat of the same id in the store becomes a copy under an id made from its content, so that the
same file imported again finds it. Branches of a copy belong to the copy: they are copied too. Links that the store has
lost are put back.

What is read is checked here rather than by msgspec or pydantic: the place in the file and what is expected there are
told in a person's words, and no dependency is needed for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, TypeVar

from app.formatting.figures import counted
from app.storage.export import VERSION, ExportError, KeptChat, kept_chat, turn_json
from app.storage.forest import parents_first
from app.storage.records import ASSISTANT, COMPLETE, FAILED, PARTIAL, STOPPED, USER, ChatRecord, TurnRecord
from app.storage.rows import attachments_of, preset_of
from app.storage.store import ChatStore

_HINT = "Name a file that `moe-chat chats export --json` made."
_ROLES = (USER, ASSISTANT)
_STATES = (COMPLETE, PARTIAL, STOPPED, FAILED)
_KINDS: dict[type, str] = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
_Value = TypeVar("_Value", str, int, list, dict)  # type: ignore[type-arg]
_Optional = TypeVar("_Optional")
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
        told = [f"{counted(len(ids), 'chat')} {what}" for ids, what in kinds if ids]
        return ", ".join(told) or "There are no chats in it."


def read_document(document: dict[str, Any]) -> list[KeptChat]:
    """The chats in a document that `export.as_json` made. Raises ExportError, which names the place that is wrong."""
    try:
        document = _storable(document)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"The file is not valid JSON: {error}.", _HINT) from error
    if document.get("version") != VERSION:
        raise ExportError(
            f"The file has version {document.get('version')!r}; this moe-chat reads version {VERSION}.",
            "Read it with the moe-chat that wrote it, or a newer one.",
        )
    return [_chat(chat, f"chats[{number}]") for number, chat in enumerate(_take(document, "", "chats", list))]


def import_chats(store: ChatStore, chats: Iterable[KeptChat]) -> Imported:
    """Keep chats that are not there yet, in any order of the file; all of them or none. Raises StoreError."""
    in_order = parents_first(chats)
    plan = _Plan(store, {kept.chat_id for kept in in_order})
    for kept in in_order:
        plan.add(kept)
    store.save_all(plan.chats.values(), plan.links)
    return Imported(tuple(plan.new), tuple(plan.copies), tuple(plan.known))


class _Plan:
    """What an import will write, and why. Chats are added parents first."""

    def __init__(self, store: ChatStore, ids_in_file: Set[str]) -> None:
        self.chats: dict[str, KeptChat] = {}
        self.links: dict[str, tuple[str, int | None]] = {}
        """Links to put back, of chats that are in the store: see `ChatStore.save_all`."""
        self.new: list[str] = []
        self.copies: list[str] = []
        self.known: list[str] = []
        self._store = store
        self._ids_in_file = ids_in_file
        self._ids: dict[str, str] = {}
        """The id in the store for each id in the file."""

    def add(self, kept: KeptChat) -> None:
        """Plan for one chat of the file. Raises StoreError."""
        id_in_file = kept.chat.chat_id
        kept = wanted = KeptChat(replace(kept.chat, parent_chat_id=self._parent_id(kept)), kept.turns)
        number = 0
        while (there := self._there(kept.chat.chat_id)) is not None and not _is_same(there, kept):
            number += 1
            kept = _copy(wanted, number)
        chat = kept.chat
        self._ids.setdefault(id_in_file, chat.chat_id)
        if there is None:
            self.chats[chat.chat_id] = kept
            (self.copies if number else self.new).append(chat.chat_id)
            return
        self.known.append(chat.chat_id)
        if there.chat.parent_chat_id is None and chat.parent_chat_id and not self._is_below(chat):
            self.links[chat.chat_id] = (chat.parent_chat_id, chat.branched_at)

    def _parent_id(self, kept: KeptChat) -> str | None:
        """The parent's id in the store; None too for a link that would close a circle in the file."""
        parent_id = kept.chat.parent_chat_id
        if parent_id is None or parent_id not in self._ids_in_file:
            return parent_id
        return self._ids.get(parent_id)

    def _is_below(self, chat: ChatRecord) -> bool:
        """Whether its new parent is a branch of the chat itself: the link would close a circle in the store."""
        passed, above = {chat.chat_id}, chat.parent_chat_id
        while above is not None and above not in passed:
            passed.add(above)
            parent = self._there(above)
            above = None if parent is None else self.links.get(above, (parent.chat.parent_chat_id, None))[0]
        return above is not None

    def _there(self, chat_id: str) -> KeptChat | None:
        return self.chats.get(chat_id) or kept_chat(self._store, chat_id)


def _is_same(there: KeptChat, kept: KeptChat) -> bool:
    """The same content and the same parent, as far as both have one. Titles and models may have changed since."""
    parents = {there.chat.parent_chat_id, kept.chat.parent_chat_id} - {None}
    return len(parents) < 2 and _content(there) == _content(kept)


def _content(kept: KeptChat) -> str:
    turns = [turn_json(turn) for turn in kept.turns]
    return json.dumps([kept.chat.domain, kept.chat.system_prompt, turns], sort_keys=True)


def _copy(kept: KeptChat, number: int) -> KeptChat:
    """The same chat under another id, which is the same for the same content; `number` tells further copies apart."""
    origin = f"{number} {kept.chat.chat_id} {kept.chat.parent_chat_id} {_content(kept)}"
    chat_id = hashlib.blake2b(origin.encode(), digest_size=16).hexdigest()
    return KeptChat(replace(kept.chat, chat_id=chat_id), [replace(turn, chat_id=chat_id) for turn in kept.turns])


def _storable(document: dict[str, Any]) -> Any:
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
        branched_at=_branched_at(value, where),
        preset=_optional(value, where, "preset", preset_of, "a preset with a name and values"),
    )
    turns = [
        _turn(turn, f"{where}.turns[{number}]", chat_id)
        for number, turn in enumerate(_take(value, where, "turns", list))
    ]
    if any(later.position < earlier.position for earlier, later in pairwise(turns)):
        raise _wrong(f"{where}.turns", "in the order of their positions")
    return KeptChat(chat, turns)


def _branched_at(chat: object, where: str) -> int | None:
    """The last position shared with the parent; -1 where the first question was edited."""
    if isinstance(chat, dict) and type(chat.get("branched_at")) is int and chat["branched_at"] == -1:
        return -1
    return _take_or_none(chat, where, "branched_at", int)


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
        in_context=_optional(value, where, "in_context", _bool_of, "true, false or null"),
        attachments=_optional(value, where, "attachments", attachments_of, "a list of files with name and text") or (),
    )


def _optional(
    holder: object, where: str, key: str, read: Callable[[object], _Optional | None], kind: str
) -> _Optional | None:
    """What an object has at `key`, if it has it: older files do not. Raises ExportError."""
    value = holder.get(key) if isinstance(holder, dict) else None
    found = None if value is None else read(value)
    if value is not None and found is None:
        raise _wrong(f"{where}.{key}", kind)
    return found


def _bool_of(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


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
