"""Keeps chats: writes what changed, keeps in memory what cannot be written, and says so once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from app.storage.database import ChatMissingError, StoreDamagedError, StoreError, StoreLockedError
from app.storage.forest import family_ids, parents_first
from app.storage.records import ChatRecord, TurnRecord
from app.storage.store import NO_END, ChatStore
from app.storage.system_errors import reason

_IN_MEMORY = "The chat goes on in memory, and is saved as soon as that is possible."


class Recorder:
    """Every chat and turn of this run, and what still has to be written. Deletions wait as writes do."""

    def __init__(self, store: ChatStore, tell: Callable[[str], None]) -> None:
        self._store = store
        store.tell = tell
        self._tell = tell
        self._chats: dict[str, ChatRecord] = {}
        self._turns: dict[str, TurnRecord] = {}
        self._unsaved_chats: dict[str, ChatRecord] = {}
        self._unsaved_turns: dict[str, TurnRecord] = {}
        self._deleted: set[str] = set()
        self._unmade_changes: list[Callable[[], None]] = []
        self._last_complaint = ""
        self.problem: StoreError | None = None
        """Why something of this run is not written; None: all of it is."""

    def save_chat(self, chat: ChatRecord) -> None:
        """Note the chat for `flush`; chats without a turn are never written."""
        self._chats[chat.chat_id] = chat
        self._unsaved_chats[chat.chat_id] = chat

    def save_turn(self, turn: TurnRecord) -> None:
        """Write the turn now, as it is, or as soon as that is possible; one of a deleted chat is not kept."""
        if turn.chat_id in self._deleted:
            return
        self._turns[turn.turn_id] = turn
        self._unsaved_turns[turn.turn_id] = turn
        self.flush()

    def rename(self, chat_id: str, title: str) -> None:
        """Call a chat something else, whether it has been written or not."""
        if chat_id in self._chats:
            self._chats[chat_id].title = title
        self._change(lambda: self._store.rename(chat_id, title))

    def delete_chat(self, chat_id: str) -> None:
        """Delete a chat and its turns, and forget what of it has not been written."""
        self._deleted.add(chat_id)
        for chats in (self._chats, self._unsaved_chats):
            chats.pop(chat_id, None)
        self._forget_turns(chat_id, 0)
        self._change(lambda: self._store.delete_chat(chat_id))

    def delete_turns(self, chat_id: str, from_position: int, before_position: int = NO_END) -> None:
        """Delete turns of a chat, from one position to before another, and forget what of them was not written."""
        self._forget_turns(chat_id, from_position, before_position)
        self._change(lambda: self._store.delete_turns(chat_id, from_position, before_position))

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
        loaded = [self.load(name) for name in family_ids(self.family(), chat_id)]
        return [kept for kept in loaded if kept is not None]

    def unsaved(self) -> list[tuple[ChatRecord, list[TurnRecord]]]:
        """The chats of this run of which something is not written, with all of their turns that can be read."""
        return [
            self._known(chat_id) for chat_id in dict.fromkeys(turn.chat_id for turn in self._unsaved_turns.values())
        ]

    def _known(self, chat_id: str) -> tuple[ChatRecord, list[TurnRecord]]:
        turns = {turn.turn_id: turn for turn in self._turns.values() if turn.chat_id == chat_id}
        with contextlib.suppress(StoreError):
            turns = {turn.turn_id: turn for turn in self._store.turns(chat_id)} | turns
        return self._chats[chat_id], sorted(turns.values(), key=lambda turn: turn.position)

    async def check(self) -> None:
        """Read the database for damage in a thread, while the event loop goes on; a damaged one is begun anew."""
        try:
            await asyncio.to_thread(self._store.check)
        except StoreDamagedError as damage:
            self._begin_anew(damage)

    def flush(self) -> None:
        """Write what has not been written. Never raises: what fails is tried again the next time."""
        if not self._unsaved_turns and not self._unmade_changes:
            return
        self.problem = None
        try:
            self._write()
        except StoreDamagedError as damage:
            self._begin_anew(damage)
        except StoreError as error:
            self._complain(error)
        else:
            if self._last_complaint:
                self._last_complaint = ""
                self._tell("The chat database can be written again: everything is saved.")

    def finish(self, wait_s: float = 0.0) -> StoreError | None:
        """Write what waits, trying again for `wait_s` seconds while another program holds the database, and close it.

        Returns why something is not written; None: all of it is.
        """
        deadline = time.monotonic() + wait_s
        self.flush()
        while isinstance(self.problem, StoreLockedError) and time.monotonic() < deadline:
            self.flush()
        self._store.close()
        return self.problem

    def close(self) -> None:
        """A last attempt, then close the database."""
        self.finish()

    def _forget_turns(self, chat_id: str, from_position: int, before_position: int = NO_END) -> None:
        for turns in (self._turns, self._unsaved_turns):
            for turn in list(turns.values()):
                if turn.chat_id == chat_id and from_position <= turn.position < before_position:
                    del turns[turn.turn_id]

    def _change(self, change: Callable[[], None]) -> None:
        """Changes come before waiting turns: those have been forgotten, or were made after them."""
        self._unmade_changes.append(change)
        self.flush()

    def _write(self) -> None:
        while self._unmade_changes:
            self._unmade_changes[0]()
            del self._unmade_changes[0]
        if not self._unsaved_turns:
            return
        begun = {turn.chat_id for turn in self._turns.values()}
        for chat in parents_first(self._unsaved_chats.values()):
            if chat.chat_id in begun or self._store.chat(chat.chat_id) is not None:
                self._store.save_chat(chat)
                del self._unsaved_chats[chat.chat_id]
        for turn in list(self._unsaved_turns.values()):
            try:
                self._store.save_turn(turn)
            except ChatMissingError:
                self._save_again(turn.chat_id)
            del self._unsaved_turns[turn.turn_id]

    def _save_again(self, chat_id: str) -> None:
        """Another instance deleted the chat that is written here: all that is known of it is kept anew."""
        if chat_id in self._chats:
            turns = [turn for turn in self._turns.values() if turn.chat_id == chat_id]
            self._store.save_whole(self._chats[chat_id], turns)

    def _begin_anew(self, damage: StoreDamagedError) -> None:
        try:
            aside = self._store.move_aside()
        except OSError as error:
            self._complain(StoreDamagedError(f"{damage.message} It could not be moved aside: {reason(error)}."))
            return
        self._tell(f"The chat database was damaged. It was moved to {aside}, and a new one begun.")
        self._unmade_changes.clear()
        self._unsaved_chats = dict(self._chats)
        self._unsaved_turns = dict(self._turns)
        try:
            self._write()
        except StoreError as error:
            self._complain(error)

    def _complain(self, problem: StoreError) -> None:
        """Say once that something is not written."""
        self.problem = problem
        if problem.message != self._last_complaint:
            words = f"{problem.message} {_IN_MEMORY} {'' if isinstance(problem, StoreLockedError) else problem.hint}"
            self._tell(words.strip())
        self._last_complaint = problem.message


class UnkeptRecorder(Recorder):
    """Writes nothing: everything stays in memory. What was kept before can be read."""

    def flush(self) -> None:
        """Nothing is written."""
