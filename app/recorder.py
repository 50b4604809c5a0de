"""Keeps chats: writes what changed, keeps in memory what cannot be written, and says so once."""

from __future__ import annotations

from collections.abc import Callable

from app.chat_records import ChatRecord, TurnRecord
from app.chat_store import ChatStore, StoreDamagedError, StoreError


class Recorder:
    """Every chat and turn of this run, and which of them still have to be written."""

    def __init__(self, store: ChatStore, tell: Callable[[str], None]) -> None:
        self._store = store
        self._tell = tell
        self._chats: dict[str, ChatRecord] = {}
        self._turns: dict[str, TurnRecord] = {}
        self._unsaved_chats: dict[str, ChatRecord] = {}
        self._unsaved_turns: dict[str, TurnRecord] = {}
        self._last_complaint = ""

    @property
    def num_unsaved(self) -> int:
        """Chats and turns that wait to be written."""
        return len(self._unsaved_chats) + len(self._unsaved_turns)

    def save_chat(self, chat: ChatRecord) -> None:
        """Note the chat for `flush`; chats without a turn are never written."""
        self._chats[chat.chat_id] = chat
        self._unsaved_chats[chat.chat_id] = chat

    def save_turn(self, turn: TurnRecord) -> None:
        """Write the turn now, as it is, or as soon as that is possible."""
        self._turns[turn.turn_id] = turn
        self._unsaved_turns[turn.turn_id] = turn
        self.flush()

    def flush(self) -> None:
        """Write what has not been written. Never raises: what fails is tried again the next time."""
        if not self._unsaved_turns:
            return
        try:
            self._write()
        except StoreDamagedError as damage:
            self._begin_anew(damage)
        except StoreError as error:
            self._complain(f"{error.message} {error.hint}")
        else:
            if self._last_complaint:
                self._complain("")
                self._tell("The chat database can be written again: everything is saved.")

    def close(self) -> None:
        """A last attempt, then close the database."""
        self.flush()
        self._store.close()

    def _write(self) -> None:
        for chat in list(self._unsaved_chats.values()):
            self._store.save_chat(chat)
            del self._unsaved_chats[chat.chat_id]
        for turn in list(self._unsaved_turns.values()):
            self._store.save_turn(turn)
            del self._unsaved_turns[turn.turn_id]

    def _begin_anew(self, damage: StoreDamagedError) -> None:
        try:
            aside = self._store.move_aside()
        except OSError as error:
            self._complain(f"{damage.message} It could not be moved aside: {error.strerror}.")
            return
        self._tell(f"The chat database was damaged. It was moved to {aside}, and a new one begun.")
        self._unsaved_chats = dict(self._chats)
        self._unsaved_turns = dict(self._turns)
        try:
            self._write()
        except StoreError as error:
            self._complain(error.message)

    def _complain(self, complaint: str) -> None:
        if complaint and complaint != self._last_complaint:
            self._tell(complaint)
        self._last_complaint = complaint
