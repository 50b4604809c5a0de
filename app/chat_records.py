"""What is kept of a chat."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

USER, ASSISTANT = "user", "assistant"
"""Roles of a turn."""

COMPLETE, PARTIAL, STOPPED, FAILED = "complete", "partial", "stopped", "error"
"""States of a turn: whole; being written (or its writer died); stopped by the user; ended by an error."""


def new_id() -> str:
    """An id that no other instance makes."""
    return uuid.uuid4().hex


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class ChatRecord:
    """One conversation. The system prompt is kept as it was, whatever becomes of the domain."""

    domain: str
    system_prompt: str
    model: str
    chat_id: str = field(default_factory=new_id)
    created_at: str = field(default_factory=_now)


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
    created_at: str = field(default_factory=_now)
