"""One chat as a state machine: questions, answers, what is sent to the engine and what is kept. Knows no screen."""

from __future__ import annotations

from dataclasses import dataclass

from app import answer_record
from app.chat_records import ASSISTANT, COMPLETE, FAILED, PARTIAL, STOPPED, USER, ChatRecord, TurnRecord
from app.domains import Domain
from app.recorder import Recorder
from engine.api import Message, Submit
from engine.config import SamplingConfig
from engine.events import CANCELLED, ERROR, Failed, ModeChanged, TextDelta, TurnEnded


@dataclass(slots=True)
class Exchange:
    """A question and, once the engine has been asked, its answer."""

    question: TurnRecord
    answer: TurnRecord | None = None
    request_id: int | None = None
    num_tok: int = 0
    """Tokens of the answer so far."""
    is_stopping: bool = False

    @property
    def is_live(self) -> bool:
        """The answer is being written."""
        return self.answer is not None and self.answer.state == PARTIAL

    @property
    def is_waiting(self) -> bool:
        """The engine has not been asked yet."""
        return self.answer is None


class Conversation:
    """A chat in one domain. Every change is handed to the recorder before anything else happens to it."""

    def __init__(self, domain: Domain, model: str, recorder: Recorder, sampling: SamplingConfig) -> None:
        self.domain = domain
        self.exchanges: list[Exchange] = []
        self._chat = ChatRecord(domain.name, domain.system_prompt.strip(), model)
        self._recorder = recorder
        self._sampling = sampling
        recorder.save_chat(self._chat)

    @property
    def chat_id(self) -> str:
        """Its id in the store."""
        return self._chat.chat_id

    @property
    def live(self) -> Exchange | None:
        """The exchange whose answer is being written."""
        return next((exchange for exchange in self.exchanges if exchange.is_live), None)

    @property
    def waiting(self) -> list[Exchange]:
        """Questions the engine has not been asked yet, in order."""
        return [exchange for exchange in self.exchanges if exchange.is_waiting]

    def of_request(self, request_id: int | None) -> Exchange | None:
        """The exchange with that request."""
        return next(
            (exchange for exchange in self.exchanges if request_id is not None and exchange.request_id == request_id),
            None,
        )

    def ask(self, text: str) -> Exchange:
        """Keep a question; the engine is asked by `begin`."""
        exchange = Exchange(TurnRecord(self.chat_id, 2 * len(self.exchanges), USER, text))
        self.exchanges.append(exchange)
        self._recorder.save_turn(exchange.question)
        return exchange

    def withdraw(self) -> str | None:
        """Take back the last question that still waits; returns its text."""
        if not self.waiting:
            return None
        exchange = self.waiting[-1]
        exchange.answer = TurnRecord(self.chat_id, exchange.question.position + 1, ASSISTANT, state=STOPPED)
        exchange.question.state = STOPPED
        self._recorder.save_turn(exchange.question)
        return exchange.question.text

    def set_model(self, name: str) -> None:
        """Keep the name of the model that answers."""
        if self._chat.model != name:
            self._chat.model = name
            self._recorder.save_chat(self._chat)

    def begin(self, exchange: Exchange, request_id: int, mode: str) -> Submit:
        """Open the answer of a waiting question; returns the command that asks for it."""
        exchange.answer = TurnRecord(
            self.chat_id, exchange.question.position + 1, ASSISTANT, state=PARTIAL, mode_label=mode
        )
        exchange.request_id = request_id
        return Submit(request_id, self._messages_up_to(exchange), self._sampling)

    def add_text(self, event: TextDelta) -> None:
        """The answer grew. Saved by `save_partial`."""
        exchange = self.of_request(event.request_id)
        if exchange is not None and exchange.answer is not None and exchange.is_live:
            exchange.answer.text += event.text
            exchange.num_tok = event.num_tok

    def save_partial(self) -> None:
        """Keep what the live answer has so far; about once a second."""
        if self.live is not None and self.live.answer is not None and self.live.answer.text:
            self._recorder.save_turn(self.live.answer)

    def note_mode(self, event: ModeChanged, previous: str) -> str | None:
        """Mark a switch inside an answer; returns the marker."""
        exchange = self.of_request(event.request_id)
        if exchange is None or exchange.answer is None or event.at_tok is None or event.mode == previous:
            return None
        marker = f"{previous} → {event.mode} at token {event.at_tok}"
        exchange.answer.markers.append(marker)
        self._recorder.save_turn(exchange.answer)
        return marker

    def end(self, event: TurnEnded) -> None:
        """The answer is complete, cut or stopped."""
        exchange = self.of_request(event.request_id)
        if exchange is None or exchange.answer is None:
            return
        answer = exchange.answer
        answer.text = event.text or answer.text
        answer.state = {CANCELLED: STOPPED, ERROR: FAILED}.get(event.reason, COMPLETE)
        answer.mode_label = event.stats.label
        answer.stats = answer_record.as_json(event.stats, event.reason)
        self._recorder.save_turn(answer)

    def fail(self, exchange: Exchange, failure: Failed) -> None:
        """The answer ends with an error; what there is of it stays."""
        if exchange.answer is None:
            return
        exchange.answer.state = FAILED
        exchange.answer.markers.append(f"{failure.title}: {failure.message}")
        self._recorder.save_turn(exchange.answer)

    def _messages_up_to(self, last: Exchange) -> tuple[Message, ...]:
        """The system prompt, every earlier exchange that has an answer, and the question."""
        messages = [Message("system", self._chat.system_prompt)] if self._chat.system_prompt else []
        for exchange in self.exchanges:
            if exchange is last:
                break
            if exchange.answer is not None and exchange.answer.text.strip():
                messages += [Message(USER, exchange.question.text), Message(ASSISTANT, exchange.answer.text)]
        return (*messages, Message(USER, last.question.text))
