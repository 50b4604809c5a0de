"""What the app opens with: the menu of domains, the last chat, a question from the command line."""

from __future__ import annotations

from dataclasses import dataclass

from app.storage.store import ChatStore


@dataclass(frozen=True, slots=True)
class Opening:
    """What was asked for at the start."""

    continues: bool = False
    """Open the chat that was used last."""
    question: str = ""
    """Asked as soon as a chat is there."""

    def last_chat_id(self, store: ChatStore) -> str | None:
        """The chat to open; None: none is wanted, or none is kept. Raises StoreError."""
        if not self.continues or not store.path.exists():
            return None
        newest = store.summaries(1)
        return newest[0].chat_id if newest else None
