"""One chat as a state machine: questions, answers, what is sent to the engine and what is kept. Knows no screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

from app.chat import context
from app.chat.comparison import ASKED, MODE, SAMPLING
from app.chat.context import CHARACTERS, ContextSize, context_characters, context_size
from app.chat.exchange import Exchange, has_text, pair
from app.formatting.sanitise import whole
from app.storage import answer_record
from app.storage.recorder import Recorder
from app.storage.records import (
    ASSISTANT,
    COMPLETE,
    FAILED,
    PARTIAL,
    STOPPED,
    USER,
    Attachment,
    ChatRecord,
    KeptPreset,
    TurnRecord,
    new_id,
    now,
)
from engine.api import Submit
from engine.config import SamplingConfig
from engine.events import CANCELLED, ERROR, Failed, ModeChanged, TextDelta, TurnEnded


class Conversation:
    """A chat. Every change is handed to the recorder before anything else happens to it."""

    def __init__(
        self, chat: ChatRecord, recorder: Recorder, sampling: SamplingConfig, turns: Iterable[TurnRecord] = ()
    ) -> None:
        """A new chat, or one that was kept, with its `turns` in order."""
        self.chat = chat
        self.exchanges = pair(list(turns))
        self.sampling = sampling
        self.thinking: str | None = None
        """What `Submit.thinking` is to say."""
        self.trims_oldest = False
        """The user chose to leave out the oldest turns where the context is full."""
        self._recorder = recorder
        self._copies: list[TurnRecord] = []
        """Turns shared with the parent, of a branch that has nothing of its own yet and so is not written."""
        self._mark_left_out(next((exchange.answer for exchange in reversed(self.exchanges) if exchange.answer), None))
        recorder.save_chat(chat)

    @property
    def is_saved(self) -> bool:
        """Everything that was to be written by now is."""
        return self._recorder.problem is None

    @property
    def chat_id(self) -> str:
        """Its id in the store."""
        return self.chat.chat_id

    @property
    def live(self) -> Exchange | None:
        """The exchange whose answer is being written."""
        return next((exchange for exchange in self.exchanges if exchange.is_live), None)

    @property
    def context_size(self) -> ContextSize:
        """What the next question finds in the context."""
        return context_size(self.chat.system_prompt, self.exchanges)

    @property
    def waiting(self) -> list[Exchange]:
        """What the engine has not been asked yet, in order."""
        return [exchange for exchange in self.exchanges if exchange.is_waiting]

    def of_request(self, request_id: int | None) -> Exchange | None:
        """The exchange with that request."""
        return next(
            (exchange for exchange in self.exchanges if request_id is not None and exchange.request_id == request_id),
            None,
        )

    @property
    def has_nothing_of_its_own(self) -> bool:
        """It has no turns, or only those shared with its parent and an answer without a word."""
        branched_at = self.chat.branched_at if self.chat.parent_chat_id is not None else None
        shared = -1 if branched_at is None else branched_at
        return not any(
            exchange.question.position > shared or (exchange.answer is not None and has_text(exchange.answer))
            for exchange in self.exchanges
            if exchange.positions.stop - 1 > shared
        )

    # What the user does

    def ask(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Exchange:
        """Keep a question and its files; the engine is asked by `begin`."""
        branched_at = -1 if self.chat.branched_at is None else self.chat.branched_at
        position = max(self.exchanges[-1].positions.stop if self.exchanges else 0, branched_at + 1)
        exchange = Exchange(TurnRecord(self.chat_id, position, USER, whole(text), attachments=attachments))
        self.exchanges.append(exchange)
        self._keep(exchange.question)
        return exchange

    def withdraw(self) -> Exchange | None:
        """Take back the last exchange that still waits; returns it. A question goes, a partial answer stays."""
        if not self.waiting:
            return None
        exchange = self.waiting[-1]
        if exchange.answer is not None:
            exchange.is_resuming = False
        else:
            self._remove(exchange, can_undo=False)
        return exchange

    def again(self, exchange: Exchange, *, recomputes: bool = False) -> None:
        """Have an answer without text written again, in its place; `recomputes`: on a context computed exactly."""
        exchange.request_id, exchange.is_resuming, exchange.recomputes = None, False, recomputes
        exchange.num_tok, exchange.is_stopping, exchange.answer = 0, False, None

    def resume(self, exchange: Exchange) -> None:
        """Have the partial answer of the last exchange continued."""
        exchange.request_id, exchange.is_resuming, exchange.is_stopping = None, True, False

    def delete(self, exchange: Exchange) -> None:
        """Move an exchange out of the chat to the bin."""
        self._remove(exchange, can_undo=True)

    def branch(self, num_exchanges: int, *, with_question: bool = False) -> Conversation:
        """A chat of its own that begins with copies of the first exchanges, and of the next question if wanted.

        The new chat is kept once it has a turn of its own.
        """
        shared = [turn for exchange in self.exchanges[:num_exchanges] for turn in exchange.turns]
        turns = [turn for turn in shared if turn.text or turn.role == USER]
        if with_question:
            turns.append(self.exchanges[num_exchanges].question)
            branched_at = turns[-1].position
        elif num_exchanges < len(self.exchanges):
            branched_at = self.exchanges[num_exchanges].question.position - 1
        else:
            branched_at = self.exchanges[-1].positions.stop - 1 if self.exchanges else -1
        chat = replace(
            self.chat, chat_id=new_id(), created_at=now(), parent_chat_id=self.chat_id, branched_at=branched_at
        )
        copies = [replace(turn, chat_id=chat.chat_id, turn_id=new_id()) for turn in turns]
        branch = Conversation(chat, self._recorder, self.sampling, copies)
        branch.thinking, branch.trims_oldest, branch._copies = self.thinking, self.trims_oldest, copies
        return branch

    def leave(self) -> None:
        """The user has gone on elsewhere: a chat with nothing of its own does not stay, nor waits to be written."""
        if self.live is None and not self.waiting and self.has_nothing_of_its_own:
            self._recorder.delete_empty_version(self.chat_id)

    def put_into_context(self, exchange: Exchange, is_in_context: bool) -> None:
        """Have later questions asked with an exchange or without it."""
        exchange.question.in_context = is_in_context
        self._keep(exchange.question)

    def set_model(self, name: str) -> None:
        """Keep the name of the model that answers."""
        if self.chat.model != name:
            self.chat.model = name
            self._recorder.save_chat(self.chat)

    def set_system_prompt(self, text: str) -> None:
        """What the model is told before the first question, from the next question on."""
        self.chat.system_prompt = whole(text.strip())
        self._recorder.change_chat(self.chat)

    def choose_preset(self, preset: KeptPreset | None, system_prompt: str | None) -> None:
        """Go on with a preset, or without one; `system_prompt` None: the present one stays."""
        self.chat.preset = preset
        self.set_system_prompt(self.chat.system_prompt if system_prompt is None else system_prompt)

    # What the engine does

    def begin(self, exchange: Exchange, request_id: int, mode: str) -> Submit:
        """Open or continue the answer of a waiting exchange; returns the command that asks for it."""
        continues = exchange.is_resuming and exchange.answer is not None
        if exchange.answer is not None and continues:
            exchange.written_before = (exchange.answer.text, exchange.answer.thinking)
            exchange.answer.state = PARTIAL
        else:
            exchange.written_before = ("", "")
            position = exchange.question.position + 1
            exchange.answer = TurnRecord(
                self.chat_id, position, ASSISTANT, state=PARTIAL, mode_label=mode, turn_id=exchange.answer_id
            )
        exchange.request_id, exchange.num_tok = request_id, 0
        exchange.asked = {MODE: mode, SAMPLING: asdict(self.sampling)}
        return Submit(
            request_id,
            context.messages(self.chat.system_prompt, self.exchanges, exchange),
            self.sampling,
            thinking=self.thinking,
            continues=continues,
            trims_oldest=self.trims_oldest,
            recomputes=exchange.recomputes,
        )

    def add_text(self, event: TextDelta) -> None:
        """The answer or its thinking grew. Saved by `save_partial`."""
        exchange = self.of_request(event.request_id)
        if exchange is None or exchange.answer is None or not exchange.is_live:
            return
        exchange.num_tok = event.num_tok
        exchange.think(event.num_tok, is_thinking=event.is_thinking)
        if event.is_thinking:
            exchange.answer.thinking += event.text
        else:
            exchange.answer.text += event.text

    def save_partial(self) -> None:
        """Keep what the live answer has so far; about once a second."""
        answer = self.live.answer if self.live is not None else None
        if answer is not None and (answer.text or answer.thinking):
            self._keep(answer)

    def note_mode(self, event: ModeChanged, previous: str) -> str | None:
        """Mark a switch inside an answer; returns the marker."""
        exchange = self.of_request(event.request_id)
        if exchange is None or exchange.answer is None or event.at_tok is None or event.mode == previous:
            return None
        marker = f"{previous} → {event.mode} at token {event.at_tok}"
        exchange.answer.markers.append(marker)
        self._keep(exchange.answer)
        return marker

    def end(self, event: TurnEnded, top_k: int | None) -> Exchange | None:
        """The answer is complete, cut or stopped; returns its exchange."""
        exchange = self.of_request(event.request_id)
        if exchange is None or exchange.answer is None:
            return None
        answer, before = exchange.answer, exchange.answer.stats if exchange.is_resuming else None
        text_before, thinking_before = exchange.written_before
        answer.text = text_before + event.text if event.text else answer.text
        answer.thinking = thinking_before + event.thinking if event.thinking else answer.thinking
        answer.state = {CANCELLED: STOPPED, ERROR: FAILED}.get(event.reason, COMPLETE)
        answer.mode_label = event.stats.label
        answer.stats = answer_record.as_json(
            event.stats, event.reason, domain=self.chat.domain, model=self.chat.model, top_k=top_k
        )
        answer.stats[ASKED] = exchange.asked
        if before is not None:
            answer.stats["before"] = before
        if event.failure is not None:
            answer.markers.append(event.failure.in_full)
        self._mark_left_out(answer)
        answer.stats[CHARACTERS] = context_characters(self.chat.system_prompt, self.exchanges)
        self._close(exchange)
        return exchange

    def fail(self, exchange: Exchange, failure: Failed) -> None:
        """The answer ends with an error; what there is of it stays."""
        if exchange.answer is not None:
            exchange.answer.state = FAILED
            exchange.answer.markers.append(failure.in_full)
            self._close(exchange)

    def _close(self, exchange: Exchange) -> None:
        exchange.is_resuming = exchange.is_stopping = exchange.recomputes = False
        if exchange.answer is not None:
            self._keep(exchange.answer)
            self._mark_left_out(exchange.answer)

    def _keep(self, turn: TurnRecord) -> None:
        """Have a turn written. A branch begins to be kept with the first that is more than an empty answer."""
        if self._copies and turn.role == ASSISTANT and not has_text(turn):
            return
        copies, self._copies = self._copies, []
        for copy in copies:
            self._recorder.save_turn(copy)
        self._recorder.save_turn(turn)

    def _remove(self, exchange: Exchange, *, can_undo: bool) -> None:
        self.exchanges.remove(exchange)
        self._copies = [copy for copy in self._copies if copy not in exchange.turns]
        self._recorder.delete_turns(self.chat_id, [turn.turn_id for turn in exchange.turns], can_undo=can_undo)

    def _mark_left_out(self, answer: TurnRecord | None) -> None:
        """Know again, from the record of the newest answer, what the model did not see for it."""
        num_messages = (answer.stats or {}).get("left_out_messages", 0) if answer is not None else 0
        if not isinstance(num_messages, int) or num_messages <= 0:
            return
        self.trims_oldest = True
        for exchange in context.first_exchanges(self.exchanges, num_messages):
            exchange.is_left_out = True
