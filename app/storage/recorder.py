"""Saves chats: writes changes, holds in memory what cannot be written, and notifies the user once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress

from app.storage.bin import BIN_DAYS, NotInBinError, Restored
from app.storage.database import ChatMissingError, StoreDamagedError, StoreError, StoreLockedError
from app.storage.forest import parents_first
from app.storage.recorded_chats import RecordedChats
from app.storage.records import ChatRecord, TurnRecord, new_id
from app.storage.store import ChatStore
from app.storage.system_errors import reason

_IN_MEMORY = "The chat continues in memory, and is saved as soon as that is possible."


class Recorder(RecordedChats):
    """Writes every chat and turn of this run, and knows what still has to be written. Deletions wait as writes do."""

    def __init__(self, store: ChatStore, tell: Callable[[str], None]) -> None:
        super().__init__(store)
        store.tell = tell
        self._tell = tell
        self._unmade_changes: list[Callable[[], None]] = []
        self._last_complaint = ""
        self.problem: StoreError | None = None
        """Why something of this run is not written; None: everything is."""

    def save_chat(self, chat: ChatRecord) -> None:
        """Queue the chat for `flush`; a chat without turns is never written."""
        self._chats[chat.chat_id] = chat
        self._unsaved_chats[chat.chat_id] = chat

    def change_chat(self, chat: ChatRecord) -> None:
        """Write a chat whose record has changed, if it is kept already; else queue it."""
        self.save_chat(chat)

        def change() -> None:
            if self._store.path.exists() and self._store.chat(chat.chat_id) is not None:
                self._store.save_chat(chat)

        self._change(change)

    def save_turn(self, turn: TurnRecord) -> None:
        """Write the turn now, or queue it if that fails; a turn of a deleted chat is dropped."""
        if turn.chat_id in self._deleted:
            return
        self._turns[turn.turn_id] = turn
        self._unsaved_turns[turn.turn_id] = turn
        self.flush()

    def rename(self, chat_id: str, title: str) -> None:
        """Rename a chat, written or not."""
        if chat_id in self._chats:
            self._chats[chat_id].title = title
        self._change(lambda: self._store.rename(chat_id, title))

    def delete_chats(self, chat_ids: Iterable[str], deletion_id: str | None = None) -> None:
        """Move chats and their turns to the bin, the newest first, as one deletion: a new one, or part of another."""
        ids, deletion = list(chat_ids), deletion_id or new_id()
        unsaved = self._unsaved_of(set(ids))
        self._deleted.update(ids)
        for chat_id in ids:
            self.forget_chat(chat_id)

        def delete() -> None:
            self._save_first(unsaved)
            self._store.bin.take_chats(ids, deletion)

        self._change(delete)

    def delete_turns(self, chat_id: str, turn_ids: Iterable[str], *, can_undo: bool = True) -> None:
        """Move turns of a chat to the bin, as one deletion; without `can_undo` delete them for good."""
        ids = list(turn_ids)
        unsaved = [
            (chat, [turn for turn in turns if turn.turn_id in ids]) for chat, turns in self._unsaved_of({chat_id})
        ]
        for turn_id in ids:
            self._turns.pop(turn_id, None)
            self._unsaved_turns.pop(turn_id, None)
        deletion = new_id()

        def delete() -> None:
            if can_undo:
                self._save_first(unsaved)
                self._store.bin.take_turns(chat_id, ids, deletion)
            else:
                self._store.delete_turns(ids)

        self._change(delete)

    def forget_chat(self, chat_id: str) -> None:
        """Drop a chat from memory and from the queue."""
        for chats in (self._chats, self._unsaved_chats):
            chats.pop(chat_id, None)
        for turns in (self._turns, self._unsaved_turns):
            for turn in [turn for turn in turns.values() if turn.chat_id == chat_id]:
                del turns[turn.turn_id]

    def delete_empty_version(self, chat_id: str) -> None:
        """Have a chat go that has nothing of its own, unless others branched from it or its parent is gone.

        Where turns of it were deleted, it becomes part of that deletion and is restored with them.
        """
        try:
            kept = self._store.chat(chat_id) if self._store.path.exists() else None
            is_needed = any(chat.parent_chat_id == chat_id for chat in self.family())
            if is_needed or (kept is not None and kept.parent_chat_id is None and self._store.turns(chat_id)):
                return
            deletion = self._store.bin.newest_turns(chat_id) if kept is not None else None
        except StoreError:
            return
        if deletion is not None:
            self.delete_chats([chat_id], deletion.deletion_id)
            return
        self.forget_chat(chat_id)
        if kept is not None:
            self._change(lambda: self._store.drop_chat(chat_id))

    def undo(self, chat_id: str | None = None) -> Restored:
        """Restore what was deleted last: a chat, or turns of the chat `chat_id`. Raises StoreError."""
        self._need_written()
        deletion = self._store.bin.newest(chat_id)
        if deletion is None:
            raise NotInBinError("Nothing was deleted.", f"Deleted chats and turns can be restored for {BIN_DAYS} days.")
        return self.restore(deletion.deletion_id)

    def restore(self, deletion_id: str) -> Restored:
        """Restore one deletion. Raises StoreError."""
        self._need_written()
        restored = self._store.bin.restore(deletion_id)
        self._deleted.difference_update(restored.chat_ids)
        return restored

    async def check(self) -> None:
        """Check the database for damage in a thread; a damaged one is moved aside and replaced by an empty one.

        Empties the bin of what is older than BIN_DAYS.
        """
        try:
            await asyncio.to_thread(self._store.check)
            await asyncio.to_thread(self._empty_bin)
        except StoreDamagedError as damage:
            self._begin_anew(damage)

    def _empty_bin(self) -> None:
        """Runs in a thread, over its own connection. What cannot be deleted now is tried at the next start."""
        if self._store.path.exists():
            with suppress(StoreError), closing(ChatStore(self._store.path, checks_at_open=False)) as store:
                store.bin.empty(days=BIN_DAYS)

    def flush(self) -> None:
        """Write everything queued. Never raises: what fails stays queued."""
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
        """Write everything queued and close the database; retries for `wait_s` seconds while it is locked.

        Returns why something is not written; None: everything is.
        """
        deadline = time.monotonic() + wait_s
        self.flush()
        while isinstance(self.problem, StoreLockedError) and time.monotonic() < deadline:
            self.flush()
        self._store.close()
        return self.problem

    def _save_first(self, unsaved: list[tuple[ChatRecord, list[TurnRecord]]]) -> None:
        """Write chats and turns before they are deleted, so that they can be restored."""
        for chat, turns in unsaved:
            self._store.save_whole(chat, turns)

    def _need_written(self) -> None:
        """Write everything queued. Raises StoreLockedError if that fails."""
        self.flush()
        if self._unmade_changes or self._unsaved_turns:
            raise StoreLockedError(
                "The chat database cannot be written now, so nothing can be restored.", "Try again later."
            )

    def _change(self, change: Callable[[], None]) -> None:
        """Queue a change and flush. Changes are made before queued turns are written."""
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
        """Another instance deleted this chat: write it again with all its known turns."""
        if chat_id in self._chats:
            turns = [turn for turn in self._turns.values() if turn.chat_id == chat_id]
            self._store.save_whole(self._chats[chat_id], turns)

    def _begin_anew(self, damage: StoreDamagedError) -> None:
        try:
            aside = self._store.move_aside()
        except OSError as error:
            self._complain(StoreDamagedError(f"{damage.message} It could not be moved aside: {reason(error)}."))
            return
        self._tell(f"The chat database was damaged. It was moved to {aside}, and a new one was created.")
        self._unmade_changes.clear()
        self._unsaved_chats = dict(self._chats)
        self._unsaved_turns = dict(self._turns)
        try:
            self._write()
        except StoreError as error:
            self._complain(error)

    def _complain(self, problem: StoreError) -> None:
        """Notify the user that something is not written; the same message only once."""
        self.problem = problem
        if problem.message != self._last_complaint:
            words = f"{problem.message} {_IN_MEMORY} {'' if isinstance(problem, StoreLockedError) else problem.hint}"
            self._tell(words.strip())
        self._last_complaint = problem.message
