"""What one answer carries along from its question to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.api import Message, Submit
from engine.chat.prompt import PreparedPrompt, WrittenAnswer
from engine.chat.thinking_marks import Section
from engine.config import SamplingConfig
from engine.events import Event, PrefillProgress, TextDelta
from engine.telemetry.turn_record import TurnRecord


class Turn:
    """One answer: its prompt, its text and thinking so far, and its record."""

    def __init__(
        self, request: Submit, prepared: PreparedPrompt, sampling: SamplingConfig, record: TurnRecord, note: str
    ) -> None:
        self.request_id, self.prompt, self.stream = request.request_id, prepared.tokens, prepared.stream
        self.is_resumed = prepared.is_resumed
        self.sampling, self.record = sampling, record
        self.text = self.thinking = ""
        self._request, self._num_left_out, self._note = request, prepared.num_left_out, note
        self._tokens: list[int] = []

    def progress(self, done_tok: int) -> PrefillProgress:
        """The event for `done_tok` tokens of the prompt."""
        reused_tok = self.record.reused_tok
        return PrefillProgress(self.request_id, done_tok, len(self.prompt), reused_tok, self._note, self._num_left_out)

    def take_token(self, emit: Callable[[Event], None], token: int) -> None:
        """One token of the text."""
        was_thinking = self.stream.is_thinking
        self._tokens.append(token)
        self.emit_text(emit, self.stream.push(token))
        if was_thinking or self.stream.is_thinking:
            self.record.thought()

    def emit_text(self, emit: Callable[[Event], None], sections: Sequence[Section]) -> None:
        """Tells what became certain of the text."""
        for text, is_thinking in sections:
            if is_thinking:
                self.thinking += text
            else:
                self.text += text
            emit(TextDelta(self.request_id, text, self.record.new_tok, is_thinking))

    def written(self) -> WrittenAnswer | None:
        """For its continuation; what a stop string cut cannot be taken up where it ends."""
        if not self._tokens or self.stream.is_stopped:
            return None
        before = self._request.messages[-1] if self._request.continues else Message("assistant", "")
        return WrittenAnswer(
            self._request,
            self.sampling.stop,
            before.content + self.text,
            before.thinking + self.thinking,
            [*self.prompt, *self._tokens],
            self.stream,
            self._num_left_out,
        )
