"""The flow of a chat: between the conversation, the engine and the transcript. Knows no keys and no layout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from app import answer_record, profile_words
from app.conversation import Conversation, Exchange
from app.domains import Domain
from app.engine_bridge import EngineBridge
from app.recorder import Recorder
from app.widgets.transcript import Transcript
from app.widgets.turn import AnswerTurn, QuestionTurn
from engine.api import Cancel
from engine.config import SamplingConfig
from engine.events import (
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
        self, bridge: EngineBridge, recorder: Recorder, sampling: SamplingConfig, transcript: Transcript, domain: Domain
    ) -> None:
        self.bridge = bridge
        self.prefill: PrefillProgress | None = None
        self._recorder = recorder
        self._sampling = sampling
        self._transcript = transcript
        self._lock = asyncio.Lock()
        self._owners: dict[int, Conversation] = {}
        self._questions: dict[str, QuestionTurn] = {}
        self._answers: dict[int, AnswerTurn] = {}
        self._last_mode = bridge.mode
        self._has_told_notices = False
        self._told_failure: Failed | None = None
        self._told_domain: DomainSet | None = bridge.profiles.domain_set
        self.conversation = self._new_conversation(domain)

    @property
    def live(self) -> Exchange | None:
        """The exchange whose answer is being written."""
        return self.conversation.live

    @property
    def is_reading_prompt(self) -> bool:
        """The engine has been asked and has not begun to answer."""
        return self.live is not None and self.live.num_tok == 0

    async def ask(self, text: str) -> None:
        """Show and keep a question, and ask the engine as soon as it can answer."""
        async with self._lock:
            exchange = self.conversation.ask(text)
            self._questions[exchange.question.turn_id] = await self._transcript.add_question(text)
            await self._send_waiting()

    def stop(self) -> bool:
        """Stop the answer that is being written; False when there is none."""
        live = self.live
        if live is None:
            return False
        live.is_stopping = True
        self.bridge.send(Cancel(live.request_id))
        return True

    async def withdraw(self) -> str | None:
        """Take the last waiting question back; returns its text."""
        async with self._lock:
            waiting = self.conversation.waiting
            text = self.conversation.withdraw()
            if text is not None:
                await self._questions.pop(waiting[-1].question.turn_id).remove()
            return text

    async def begin_chat(self, domain: Domain) -> None:
        """Leave this chat, its answer stopped and kept, and begin another."""
        async with self._lock:
            self.stop()
            self.conversation.save_partial()
            self.conversation = self._new_conversation(domain)
            self.prefill = None
            await self._transcript.clear()

    async def catch_up(self) -> None:
        """Tell what happened before this screen was there."""
        async with self._lock:
            if self.bridge.ready is not None:
                await self._engine_ready(self.bridge.ready)
            if self.bridge.failure is not None and self.bridge.is_down:
                await self._engine_failed(self.bridge.failure)

    async def handle(self, events: Iterable[Event]) -> None:
        """Take in what the engine told, text of one batch at once."""
        async with self._lock:
            text: dict[int, str] = {}
            for event in events:
                if isinstance(event, TextDelta):
                    if event.request_id in self._owners:
                        self._owners[event.request_id].add_text(event)
                        text[event.request_id] = text.get(event.request_id, "") + event.text
                    continue
                await self._show_text(text)
                await self._handle_one(event)
            await self._show_text(text)
            await self._send_waiting()

    async def tell_domain(self) -> None:
        """Say what setting the domain did to the cache, once, before the exchange it came before."""
        event = self.bridge.profiles.domain_set
        if event is None or event is self._told_domain:
            return
        async with self._lock:
            self._told_domain = event
            text = profile_words.warmed(event) if event.domain == self.conversation.domain.name else ""
            if text:
                open_exchange = self.live or next(iter(self.conversation.waiting), None)
                before = self._questions.get(open_exchange.question.turn_id) if open_exchange else None
                await self._transcript.add_notice(text, before=before)

    async def tell(self, text: str, *, is_error: bool = False) -> None:
        """Put a line of the app's own into the transcript."""
        async with self._lock:
            await self._transcript.add_notice(text, is_error=is_error)

    def save_partial(self) -> None:
        """Keep what there is of the answer, and what could not be written before."""
        self.conversation.save_partial()
        self._recorder.flush()

    def _new_conversation(self, domain: Domain) -> Conversation:
        model = self.bridge.ready.model_name if self.bridge.ready else self.bridge.config.model
        return Conversation(domain, model, self._recorder, self._sampling)

    async def _send_waiting(self) -> None:
        """Ask the engine the next question. While a profile is being made questions wait, and can be taken back."""
        is_free = self.bridge.is_ready and self.bridge.profiles.task is None and self.live is None
        if not is_free or not self.conversation.waiting:
            return
        exchange, request_id = self.conversation.waiting[0], self.bridge.next_request_id()
        self.prefill = None
        self._owners[request_id] = self.conversation
        self.bridge.send(self.conversation.begin(exchange, request_id, self.bridge.mode))
        question = self._questions.get(exchange.question.turn_id)
        self._answers[request_id] = await self._transcript.add_answer(after=question)

    async def _show_text(self, text: dict[int, str]) -> None:
        for request_id, added in text.items():
            answer = self._answers.get(request_id)
            if answer is not None and answer.is_shown and not answer.is_finished and added:
                await answer.add(added)
        text.clear()

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
            first = next(iter(self._transcript.children), None)
            for notice in ready.notices:
                await self._transcript.add_notice(notice, before=first)
        await self._send_waiting()

    def _mode_changed(self, event: ModeChanged) -> None:
        previous, self._last_mode = self._last_mode, event.mode
        owner = self._owners.get(event.request_id) if event.request_id is not None else None
        marker = owner.note_mode(event, previous) if owner is not None else None
        answer = self._answers.get(event.request_id) if event.request_id is not None else None
        if marker is not None and answer is not None and answer.is_shown:
            answer.mark(marker)

    async def _turn_ended(self, event: TurnEnded) -> None:
        owner = self._owners.pop(event.request_id, None)
        answer = self._answers.pop(event.request_id, None)
        if owner is None:
            return
        owner.end(event)
        exchange = owner.of_request(event.request_id)
        if answer is not None and answer.is_shown and exchange is not None and exchange.answer is not None:
            top_k = self.bridge.ready.top_k if self.bridge.ready else None
            await answer.finish(exchange.answer.text, answer_record.summary(event.stats, event.reason, top_k))
        await self._send_waiting()

    async def _answer_failed(self, failure: Failed) -> None:
        assert failure.request_id is not None
        owner = self._owners.pop(failure.request_id, None)
        answer = self._answers.pop(failure.request_id, None)
        exchange = owner.of_request(failure.request_id) if owner is not None else None
        if owner is None or exchange is None or exchange.answer is None:
            return
        owner.fail(exchange, failure)
        if answer is not None and answer.is_shown:
            await answer.finish(
                exchange.answer.text, "", error=f"{failure.title}: {failure.message} {failure.hint}".strip()
            )
        await self._send_waiting()

    async def _engine_failed(self, failure: Failed) -> None:
        """The engine died or could not load: end what it was writing, say so once, keep the rest."""
        if not failure.is_fatal and self.bridge.is_ready:  # such as a profile that cannot be used; the engine goes on
            await self._transcript.add_notice(f"{failure.title}: {failure.message} {failure.hint}".strip())
            return
        if self._told_failure is not None and self._told_failure.is_fatal:
            return  # an error that ends the engine is followed by word of its end
        self._told_failure = failure
        for request_id in list(self._owners):
            await self._answer_failed(Failed(request_id, failure.title, "the answer ends here.", "", is_fatal=True))
        words = f"{failure.title}: {failure.message} {failure.hint}".strip()
        if self.bridge.is_down:
            words += " Nothing of the chat is lost; f8 starts the engine again."
        await self._transcript.add_notice(words, is_error=True)
