"""What can be done to turns that are there: answer again, ask differently, go on, branch, delete, see versions."""

from __future__ import annotations

from app.chat.attachments import AttachmentError, question_of
from app.chat.conversation import Conversation
from app.chat.exchange import Exchange
from app.chat.versions import versions_at
from app.ui.key_map import key_for
from app.ui.screens.chat_flow import ChatFlow
from engine.config import EXACT

_NOT_HERE = "That turn is not in this chat."


class TurnFlow:
    """Works on the conversation of a flow. Every step returns what stands in its way; empty: it was done."""

    def __init__(self, flow: ChatFlow) -> None:
        self._flow = flow

    @property
    def _conversation(self) -> Conversation:
        return self._flow.conversation

    @property
    def _busy(self) -> str:
        return f"An answer is being written; {self._key('chat.stop')} stops it."

    def _key(self, action_id: str) -> str:
        return key_for(self._flow.transcript, action_id)

    async def regenerate(self, exchange: Exchange, *, trims_oldest: bool = False, recomputes: bool = False) -> str:
        """Answer a question again, in a branch of the chat: the earlier answer stays in the old one.

        Under EXACT, one that built on approximate context gets a context that is computed exactly; `recomputes`: any.
        """
        async with self._flow.lock:
            if problem := self._problem_with(exchange):
                return problem
            bridge, answer = self._flow.bridge, exchange.answer
            recomputes |= exchange.is_on_approximate_context and bridge.coming_mode == EXACT
            if answer is not None and (answer.text or answer.thinking):
                number = self._conversation.exchanges.index(exchange)
                await self._flow.enter(self._conversation.branch(number, with_question=True))
                exchange = self._conversation.exchanges[-1]
            self._conversation.trims_oldest |= trims_oldest
            self._conversation.again(exchange, recomputes=recomputes)
            await self._flow.transcript.remove_exchange(exchange, answer_only=True)
            await self._flow.transcript.to_end()
            await self._flow.send_waiting()
            return ""

    async def ask_differently(self, exchange: Exchange, text: str) -> str:
        """Ask another question in place of one, in a branch of the chat: the earlier one stays in the old one. Files
        that the earlier one had, and this one names, are sent as they were."""
        async with self._flow.lock:
            if problem := self._problem_with(exchange):
                return problem
            try:
                question = question_of(text, sent_before=exchange.question.attachments)
            except AttachmentError as error:
                return error.in_full
            number = self._conversation.exchanges.index(exchange)
            await self._flow.enter(self._conversation.branch(number))
        await self._flow.ask(*question)
        async with self._flow.lock:
            self._flow.place_versions()
            self._flow.transcript.refresh_turns()
        return ""

    async def go_on(self, exchange: Exchange, *, trims_oldest: bool = False) -> str:
        """Continue an answer that was stopped or cut."""
        async with self._flow.lock:
            if problem := self._problem_with(exchange):
                return problem
            if exchange.is_elsewhere:
                return "Another moe-chat is writing that answer."
            if not exchange.can_resume:
                return "That answer is complete; there is nothing to continue."
            if exchange is not self._conversation.exchanges[-1]:
                branch = f"{self._key('turn.branch')} continues from an earlier one in a chat of its own"
                return f"Only the last answer can be continued; {branch}."
            self._conversation.trims_oldest |= trims_oldest
            self._conversation.resume(exchange)
            await self._flow.send_waiting()
            return ""

    async def branch(self, exchange: Exchange) -> str:
        """Go on after a turn in a chat of its own."""
        async with self._flow.lock:
            if exchange.answer is None or exchange.is_live:
                return self._busy
            if exchange not in self._conversation.exchanges:
                return _NOT_HERE
            number = self._conversation.exchanges.index(exchange)
            await self._flow.enter(self._conversation.branch(number + 1))
            return ""

    async def delete(self, exchange: Exchange) -> str:
        """Move a question and its answer to the bin."""
        async with self._flow.lock:
            if exchange.is_live:
                return self._busy
            if exchange not in self._conversation.exchanges:
                return _NOT_HERE
            self._conversation.delete(exchange)
            await self._flow.transcript.remove_exchange(exchange)
            return ""

    async def change_context(self, exchange: Exchange) -> str:
        """Have later questions asked without an exchange that they are asked with, or the other way round."""
        async with self._flow.lock:
            if exchange not in self._conversation.exchanges:
                return _NOT_HERE
            if exchange.is_live or exchange.is_waiting:
                return "It is in the context while it is answered."
            self._conversation.put_into_context(exchange, not exchange.is_in_context)
            if (answer := self._flow.transcript.answer_of(exchange)) is not None:
                await answer.finish()
            await self._flow.transcript.show_left_out()
            return ""

    def _problem_with(self, exchange: Exchange) -> str:
        if self._flow.is_busy:
            return self._busy
        return "" if exchange in self._conversation.exchanges else _NOT_HERE

    def other_version(self, exchange: Exchange, step: int, *, of_answer: bool) -> str | None:
        """The chat with the next or previous version of a turn, if there is one."""
        position = exchange.positions.start + of_answer
        chat_id = self._conversation.chat_id
        versions = versions_at(self._flow.recorder.family(), chat_id, position)
        place = versions.index(chat_id) + step
        return versions[place] if 0 <= place < len(versions) and versions[place] != chat_id else None
