"""The chats that are known: those of this run, written or not, over those in the database."""

from __future__ import annotations

from contextlib import suppress

from app.storage.database import StoreError
from app.storage.forest import version_ids
from app.storage.records import ChatRecord, TurnRecord
from app.storage.store import ChatStore


class RecordedChats:
    """What is known of chats and turns, to be read. `app.storage.recorder` writes it."""

    def __init__(self, store: ChatStore) -> None:
        self._store = store
        self._chats: dict[str, ChatRecord] = {}
        self._turns: dict[str, TurnRecord] = {}
        self._unsaved_chats: dict[str, ChatRecord] = {}
        self._unsaved_turns: dict[str, TurnRecord] = {}
        self._deleted: set[str] = set()
        self._seen_version: int | None = None
        """Of the database, when it was last looked at for what others wrote."""

    def flush(self) -> None:
        """Write what has not been written, as far as that is possible."""
        raise NotImplementedError

    def load(self, chat_id: str) -> tuple[ChatRecord, list[TurnRecord]] | None:
        """A chat and its turns in order, with what waits to be written; None: there is no such chat.

        Raises StoreError.
        """
        self.flush()
        chat = self._chats.get(chat_id) or self._store.chat(chat_id)
        if chat is None:
            return None
        self._deleted.discard(chat_id)  # it was imported again
        turns = {turn.turn_id: turn for turn in self._store.turns(chat_id)}
        turns |= {turn.turn_id: turn for turn in self._turns.values() if turn.chat_id == chat_id}
        return chat, sorted(turns.values(), key=lambda turn: turn.position)

    def family(self) -> list[ChatRecord]:
        """Every chat that branched from another, and those others; none while the store cannot be read."""
        try:
            chats = {chat.chat_id: chat for chat in self._store.chats()} | self._chats
        except StoreError:
            chats = dict(self._chats)
        parents = {chat.parent_chat_id for chat in chats.values()}
        return [chat for chat in chats.values() if chat.parent_chat_id or chat.chat_id in parents]

    def versions(self, chat_id: str) -> list[tuple[ChatRecord, list[TurnRecord]]]:
        """A chat with its turns, and the same of all that is linked with it, with what waits to be written.

        Raises StoreError.
        """
        loaded = [self.load(name) for name in version_ids(self.family(), chat_id)]
        return [kept for kept in loaded if kept is not None]

    def elsewhere(self, chat_id: str) -> list[TurnRecord] | None:
        """The turns of a chat in order, once another program has written to the database; None: it has not, or the
        chat is not kept. Raises StoreError."""
        if not self._store.path.exists() or (version := self._store.data_version()) == self._seen_version:
            return None
        self._seen_version = version
        return None if self._store.chat(chat_id) is None else self.turns_now(chat_id)

    def turns_now(self, chat_id: str) -> list[TurnRecord]:
        """The turns of a chat as they are kept, with what waits to be written, in order. Raises StoreError."""
        self.flush()
        turns = {turn.turn_id: turn for turn in self._store.turns(chat_id)}
        for turn in [turn for turn in self._turns.values() if turn.chat_id == chat_id]:
            if turn.turn_id not in turns and turn.turn_id not in self._unsaved_turns:
                del self._turns[turn.turn_id]  # deleted by another program
        turns |= {turn.turn_id: turn for turn in self._unsaved_turns.values() if turn.chat_id == chat_id}
        return sorted(turns.values(), key=lambda turn: turn.position)

    def unsaved(self) -> list[tuple[ChatRecord, list[TurnRecord]]]:
        """The chats of which something is not written, with all of their turns that can be read."""
        found = []
        for chat, turns in self._unsaved_of({turn.chat_id for turn in self._unsaved_turns.values()}):
            with suppress(StoreError):
                turns = self.turns_now(chat.chat_id)
            found.append((chat, turns))
        return found

    def _unsaved_of(self, chat_ids: set[str]) -> list[tuple[ChatRecord, list[TurnRecord]]]:
        """Chats with what of their turns has not been written."""
        turns = [turn for turn in self._unsaved_turns.values() if turn.chat_id in chat_ids]
        return [
            (self._chats[chat_id], [turn for turn in turns if turn.chat_id == chat_id])
            for chat_id in dict.fromkeys(turn.chat_id for turn in turns)
            if chat_id in self._chats
        ]
