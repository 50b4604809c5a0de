"""The flow of a chat: between the conversation, the engine and the transcript. Knows no keys and no layout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from app.chat.conversation import Conversation
from app.chat.exchange import Exchange
from app.chat.versions import place_in_family, versions_at
from app.domains import profile_words
from app.domains.domain import Domain, domain_called
from app.engine_link.bridge import EngineBridge
from app.settings.settings import Settings
from app.storage.recorder import Recorder
from app.storage.records import Attachment
from app.ui.chat_settings import ChatSettings
from app.ui.key_map import key_for
from app.ui.widgets.transcript import Transcript
from engine.api import Cancel
from engine.events import (
    CONTEXT_FULL,
    DomainSet,
    EngineReady,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    PrefillProgress,
    TextDelta,
    TurnEnded,
)


class ChatFlow:
    """One conversation on screen. Steps are serialised: keys and engine events may come at once."""

    def __init__(
        self, bridge: EngineBridge, recorder: Recorder, settings: Settings, transcript: Transcript, domain: Domain
    ) -> None:
        self.bridge = bridge
        self.domain = domain
        self.settings = ChatSettings(settings)
        self.prefill: PrefillProgress | None = None
        self.full: Exchange | None = None
        """What met the end of the context, until the user has been asked what to do."""
        self.version = (1, 1)
        """Which version of the chat this is, and of how many."""
        self.recorder = recorder
        self.transcript = transcript
        self.lock = asyncio.Lock()
        self._owners: dict[int, Conversation] = {}
        self._last_mode = bridge.mode
        self._has_told_notices = False
        self._told_failure: Failed | None = None
        self._told_domain: DomainSet | None = bridge.profiles.domain_set
        self.conversation = self._new_conversation()

    @property
    def live(self) -> Exchange | None:
        """The exchange whose answer is being written."""
        return self.conversation.live

    @property
    def is_busy(self) -> bool:
        """An answer is being written, or waits to be."""
        return self.live is not None or bool(self.conversation.waiting)

    @property
    def is_reading_prompt(self) -> bool:
        """The engine has been asked and has not begun to answer."""
        return self.live is not None and self.live.num_tok == 0

    # What the user does

    async def ask(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Show and keep a question and its files, and ask the engine as soon as it can answer."""
        async with self.lock:
            await self.transcript.add_question(self.conversation.ask(text, attachments))
            await self.send_waiting()

    def stop(self) -> bool:
        """Stop the answer that is being written; False when there is none."""
        if (live := self.live) is None:
            return False
        live.is_stopping = True
        self.bridge.send(Cancel(live.request_id))
        return True

    async def withdraw(self) -> str | None:
        """Take the last waiting question back; returns its text, empty for an answer that was to be continued."""
        async with self.lock:
            exchange = self.conversation.withdraw()
            if exchange is None:
                return None
            if exchange.answer is not None:
                return ""
            await self.transcript.remove_exchange(exchange)
            return exchange.question.text

    async def begin_chat(self, domain: Domain) -> None:
        """Leave this chat, its answer stopped and kept, and begin another."""
        async with self.lock:
            self.domain = domain
            await self.enter(self._new_conversation())

    async def open_chat(self, chat_id: str) -> bool:
        """Leave this chat and go on with one that was kept; False when there is none. Raises StoreError."""
        async with self.lock:
            conversation = next((owner for owner in self._owners.values() if owner.chat_id == chat_id), None)
            if conversation is None:
                kept = self.recorder.load(chat_id)
                if kept is None:
                    return False
                conversation = Conversation(kept[0], self.recorder, self.settings.sampling(kept[0]), kept[1])
            self.domain = domain_called(conversation.chat.domain)
            await self.enter(conversation)
            return True

    async def enter(self, conversation: Conversation) -> None:
        """Show another conversation. The lock is held."""
        left = self.conversation
        if conversation is not left:
            self.stop()
            left.save_partial()
        self.conversation, self.prefill, self.full = conversation, None, None
        if conversation.chat_id != left.chat_id:
            left.leave()
        self.place_versions()
        await self.transcript.show(conversation.exchanges)

    def place_versions(self) -> None:
        """Know of the chat and of every turn which version it is, and of how many."""
        chat_id, family = self.conversation.chat_id, self.recorder.family()
        self.version = place_in_family(family, chat_id)

        def place(position: int) -> tuple[int, int]:
            versions = versions_at(family, chat_id, position)
            return versions.index(chat_id) + 1, len(versions)

        for exchange in self.conversation.exchanges:
            start = exchange.positions.start
            exchange.question_place, exchange.answer_place = place(start), place(start + 1)

    # What the engine tells

    async def catch_up(self) -> None:
        """Tell what happened before this screen was there."""
        async with self.lock:
            if self.bridge.ready is not None:
                await self._engine_ready(self.bridge.ready)
            if self.bridge.failure is not None and self.bridge.is_down:
                await self._engine_failed(self.bridge.failure)

    async def handle(self, events: Iterable[Event]) -> None:
        """Take in what the engine told, text of one batch at once."""
        async with self.lock:
            for event in events:
                if isinstance(event, TextDelta):
                    if event.request_id in self._owners:
                        self._owners[event.request_id].add_text(event)
                else:
                    await self._handle_one(event)
            live = self.live
            answer = self.transcript.answer_of(live) if live is not None else None
            if answer is not None:
                answer.show_text()
                answer.show_thinking()
            await self.send_waiting()

    async def tell_domain(self) -> None:
        """Say what setting the domain did to the cache, once, before the exchange it came before."""
        event = self.bridge.profiles.domain_set
        if event is None or event is self._told_domain:
            return
        async with self.lock:
            self._told_domain = event
            text = profile_words.warmed(event) if event.domain == self.domain.name else ""
            if text:
                open_exchange = self.live or next(iter(self.conversation.waiting), None)
                await self.transcript.add_notice(text, before=open_exchange)

    async def tell(self, text: str, *, is_error: bool = False) -> None:
        """Put a line of the app's own into the transcript."""
        async with self.lock:
            await self.transcript.add_notice(text, is_error=is_error)

    def save_partial(self) -> None:
        """Keep what there is of the answer, and what could not be written before."""
        self.conversation.save_partial()
        self.recorder.flush()

    async def send_waiting(self) -> None:
        """Ask the engine the next question. Building a profile gives way to it; deleting one is over at once."""
        task = self.bridge.profiles.task
        is_free = self.bridge.is_ready and (task is None or task.is_build) and self.live is None
        if not is_free or not self.conversation.waiting:
            return
        exchange, request_id = self.conversation.waiting[0], self.bridge.next_request_id()
        self.prefill = None
        self.conversation.sampling = self.settings.sampling(self.conversation.chat)
        self._owners[request_id] = self.conversation
        command = self.conversation.begin(exchange, request_id, self.bridge.coming_mode)
        thinking = self.settings.thinking(self.conversation.chat, command.thinking, self.bridge.ready)
        self.bridge.send(replace(command, thinking=thinking))
        await self.transcript.add_answer(exchange)

    def _new_conversation(self) -> Conversation:
        model = self.bridge.ready.model_name if self.bridge.ready else self.bridge.config.model
        chat = self.settings.new_chat(self.domain, model)
        return Conversation(chat, self.recorder, self.settings.sampling(chat))

    async def _handle_one(self, event: Event) -> None:
        match event:
            case LoadProgress():
                self._told_failure = None
            case EngineReady():
                await self._engine_ready(event)
            case PrefillProgress():
                if self.live is not None and self.live.request_id == event.request_id:
                    self.prefill = event
            case ModeChanged():
                self._mode_changed(event)
            case TurnEnded():
                await self._turn_ended(event)
            case Failed(request_id=None):
                await self._engine_failed(event)
            case Failed():
                await self._answer_failed(event)
            case _:
                pass

    async def _engine_ready(self, ready: EngineReady) -> None:
        self.conversation.set_model(ready.model_name)
        if not self._has_told_notices:
            self._has_told_notices = True
            for notice in reversed(ready.notices):
                await self.transcript.add_first_notice(notice)
        await self.send_waiting()

    def _mode_changed(self, event: ModeChanged) -> None:
        previous, self._last_mode = self._last_mode, event.mode
        owner = self._owners.get(event.request_id) if event.request_id is not None else None
        exchange = owner.of_request(event.request_id) if owner is not None else None
        if owner is None or exchange is None or owner.note_mode(event, previous) is None:
            return
        if (answer := self.transcript.answer_of(exchange)) is not None:
            answer.show_changes()

    async def _turn_ended(self, event: TurnEnded) -> None:
        owner = self._owners.pop(event.request_id, None)
        if owner is None:
            return
        exchange = owner.end(event, self.bridge.ready.top_k if self.bridge.ready else None)
        if exchange is not None:
            is_full = event.reason == CONTEXT_FULL or (event.failure is not None and _is_full(event.failure))
            await self._show_end(owner, exchange, is_full=is_full)

    async def _answer_failed(self, failure: Failed) -> None:
        owner = self._owners.pop(failure.request_id, None) if failure.request_id is not None else None
        exchange = owner.of_request(failure.request_id) if owner is not None else None
        if owner is not None and exchange is not None:
            owner.fail(exchange, failure)
            await self._show_end(owner, exchange, is_full=_is_full(failure))

    async def _show_end(self, owner: Conversation, exchange: Exchange, *, is_full: bool) -> None:
        if (answer := self.transcript.answer_of(exchange)) is not None:
            await answer.finish()
        if owner is self.conversation:
            self.full = exchange if is_full else self.full
            await self.transcript.show_left_out()
        else:
            owner.leave()

    async def _engine_failed(self, failure: Failed) -> None:
        """The engine died or could not load: end what it was writing, say so once, keep the rest."""
        if not failure.is_fatal and self.bridge.is_ready:  # such as a profile that cannot be used; the engine goes on
            await self.transcript.add_notice(failure.in_full)
            return
        if self._told_failure is not None and self._told_failure.is_fatal:
            return  # an error that ends the engine is followed by word of its end
        self._told_failure = failure
        for request_id in list(self._owners):
            await self._answer_failed(Failed(request_id, failure.title, "the answer ends here.", "", is_fatal=True))
        words = failure.in_full
        if self.bridge.is_down:
            restart = key_for(self.transcript, "app.restart")
            words += f" Nothing of the chat is lost; {restart} starts the engine again."
        await self.transcript.add_notice(words, is_error=True)


def _is_full(failure: Failed) -> bool:
    return failure.kind == "context_full"
