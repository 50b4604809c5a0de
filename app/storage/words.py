"""What lists of chats say about one: when, how long, in which domain, by which model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from app.domains.domain import title_of
from app.formatting.figures import counted
from app.storage import forest
from app.storage.records import ChatSummary, Deletion

_WEEK_DAYS = 7


def moment(written: str) -> str:
    """A kept time on the user's clock: `2026-01-31 14:03`."""
    at = _parsed(written)
    return at.strftime("%Y-%m-%d %H:%M") if at else written


def when(written: str, now: datetime | None = None) -> str:
    """A kept time as people say it: `5 min ago`, `14:03`, `yesterday 14:03`, `Monday 14:03`, `31 Jan`, `2025-01-31`."""
    at, now = _parsed(written), now or datetime.now().astimezone()
    if at is None:
        return written
    days = (now.date() - at.date()).days
    minutes = (now - at).total_seconds() / 60
    if 0 <= minutes < 60:
        return "just now" if minutes < 1 else f"{minutes:.0f} min ago"
    if days == 0:
        return f"{at:%H:%M}"
    if days == 1:
        return f"yesterday {at:%H:%M}"
    if 1 < days < _WEEK_DAYS:
        return f"{at:%A %H:%M}"
    return f"{at.day} {at:%b}" if at.year == now.year else f"{at:%Y-%m-%d}"


def about_deletion(deletion: Deletion) -> str:
    """`chat · 12 turns · 3 versions · deleted 5 min ago`."""
    parts = ["chat" if deletion.is_chat else "turns of a chat", counted(deletion.num_turns, "turn")]
    if deletion.num_chats > 1:
        parts.append(f"{deletion.num_chats} versions")
    return " · ".join([*parts, f"deleted {when(deletion.deleted_at)}"])


@dataclass(frozen=True, slots=True)
class ChatVersions:
    """A chat and those that branched from it, which are its versions, the newest first."""

    versions: tuple[ChatSummary, ...]

    @property
    def newest(self) -> ChatSummary:
        """The one with the newest turn."""
        return self.versions[0]

    @property
    def chat_ids(self) -> tuple[str, ...]:
        """The ids of all of them."""
        return tuple(chat.chat_id for chat in self.versions)

    def about(self) -> str:
        """`5 min ago · 12 turns · Maths · demo · 3 versions`."""
        chat = self.newest
        parts = [when(chat.updated_at), counted(chat.num_turns, "turn"), title_of(chat.domain), chat.model]
        if len(self.versions) > 1:
            parts.append(f"{len(self.versions)} versions")
        return " · ".join(part for part in parts if part)


def grouped_versions(chats: Iterable[ChatSummary]) -> list[ChatVersions]:
    """Chats, the newest first, grouped with their versions, in the order of the newest of each."""
    return [ChatVersions(tuple(family)) for family in forest.grouped_versions(chats)]


def _parsed(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written).astimezone()
    except ValueError:
        return None
