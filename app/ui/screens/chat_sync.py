"""A chat on screen that something else has changed: another instance wrote in it, or what was deleted came back."""

from __future__ import annotations

from app.chat.exchange import Exchange
from app.chat.sync import Changes, take_over
from app.formatting.figures import counted
from app.storage.bin import Restored
from app.storage.database import StoreError
from app.storage.records import TurnRecord
from app.ui.screens.chat_flow import ChatFlow


class ChatSync:
    """Keeps the conversation of a flow and its transcript as the store has them."""

    def __init__(self, flow: ChatFlow) -> None:
        self._flow = flow

    async def look(self) -> Changes:
        """Show what another program has written in this chat since the last time; nothing where it cannot be read."""
        async with self._flow.lock:
            try:
                turns = self._flow.recorder.elsewhere(self._flow.conversation.chat_id)
            except StoreError:
                return Changes()
            return Changes() if turns is None else await self._take_over(turns)

    async def undo(self) -> Restored:
        """Restore the last chat that was deleted, or what was deleted last in this one. Raises StoreError."""
        async with self._flow.lock:
            chat_id, recorder = self._flow.conversation.chat_id, self._flow.recorder
            restored = recorder.undo(chat_id)
            if chat_id in restored.chat_ids:
                await self._take_over(recorder.turns_now(chat_id))
            self._flow.place_versions()
            self._flow.transcript.refresh_turns()
            return restored

    async def _take_over(self, turns: list[TurnRecord]) -> Changes:
        conversation, transcript = self._flow.conversation, self._flow.transcript
        changes = take_over(conversation.exchanges, turns)
        for exchange in changes.removed:
            await transcript.remove_exchange(exchange)
        for exchange in changes.added:
            await transcript.add_exchange(exchange, before=self._next_shown(exchange, changes.added))
        for exchange in changes.changed:
            if transcript.entry_of(exchange, is_answer=True) is None:
                await transcript.add_answer(exchange)
            elif (answer := transcript.answer_of(exchange)) is not None:
                await answer.finish()
        if changes:
            self._flow.place_versions()
            transcript.refresh_turns()
        return changes

    def _next_shown(self, exchange: Exchange, added: list[Exchange]) -> Exchange | None:
        """What stands behind an exchange and has rows in the transcript."""
        exchanges = self._flow.conversation.exchanges
        behind = exchanges[exchanges.index(exchange) + 1 :]
        waiting = added[added.index(exchange) :]
        return next((other for other in behind if other not in waiting), None)


def words_about(changes: Changes) -> str:
    """What another instance did, for a person."""
    words = [
        f"{what} {counted(len(exchanges), 'question')}"
        for what, exchanges in (("wrote", changes.added), ("deleted", changes.removed))
        if exchanges
    ]
    return f"Another moe-chat {' and '.join(words)} in this chat."
