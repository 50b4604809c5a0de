"""From a request to a prompt and the stream its answer is read by; and the last answer, kept to be continued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine.api import Message, Submit
from engine.chat.conversation import ConversationEncoder
from engine.chat.fitting import check_fits, fit, reserve_tok
from engine.chat.text_stream import TextStream
from engine.chat.thinking_marks import ANSWER, MID_THINKING, START, find_format
from engine.chat.thinking_switch import find_choices
from engine.config import SamplingConfig
from engine.errors import ConfigError

_PROMPT_END_TOK = 16
"""Tokens at a prompt's end in which the template may have opened the thinking."""


class Prepared(NamedTuple):
    """What an answer begins with."""

    tokens: list[int]
    stream: TextStream
    num_left_out: int
    """Messages left out, so that it fits."""
    is_resumed: bool = False
    """The last answer goes on from its own tokens."""


class Written(NamedTuple):
    """An answer as it was left: what it answers, its whole text, and the ids of prompt and answer."""

    request: Submit
    stop: tuple[str, ...]
    text: str
    thinking: str
    tokens: list[int]
    stream: TextStream
    num_left_out: int


class ChatPrompts:
    """Prompts for one model. Remembers the last answer, so that continuing it is as if it had never stopped."""

    def __init__(self, tokenizer: Any, context_tok: int, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Renders the chat template a few times. Raises UnsupportedModelError for one that exceeds its limits or leaves
        out what the user says, CheckpointError for one that is no text, and WaitCancelled."""
        self._tokenizer, self._context_tok = tokenizer, context_tok
        self._encoder = ConversationEncoder(tokenizer, is_cancelled)
        self.template = self._encoder.template
        self.template.check()
        self._choices = find_choices(self.template)
        self._marks = find_format(tokenizer)
        self._written: Written | None = None
        self._left_out: Sequence[Message] = ()

    @property
    def thinking_choices(self) -> tuple[str, ...]:
        """What `Submit.thinking` may say."""
        return tuple(self._choices)

    def prepare(self, request: Submit, sampling: SamplingConfig) -> Prepared:
        """Raises what ConversationEncoder.encode does, ContextFullError, and ConfigError for a thinking that the model
        does not have."""
        variables = self._choices.get(request.thinking or "", {})
        if request.thinking is not None and not variables:
            known = ", ".join(self._choices) or "nothing: its chat template has no such switch"
            raise ConfigError(f"The model's thinking cannot be set to {request.thinking!r}.", f"It can be: {known}.")
        left = self._left_at(request, sampling)
        if left is not None:
            return left
        fitted = fit(
            request.messages,
            lambda messages: self._encoder.encode(messages, variables, request.continues),
            self._context_tok,
            sampling.max_new_tok,
            request.trims_oldest,
            self._num_left_out_before(request.messages),
        )
        self._left_out = _oldest(request.messages, fitted.num_left_out)
        begins = self._begins(request, fitted.prompt)
        before = fitted.prompt if begins in (ANSWER, MID_THINKING) else ()
        stream = TextStream(self._tokenizer, sampling.stop, self._marks, begins, before)
        return Prepared(fitted.prompt, stream, fitted.num_left_out)

    def remember(self, answer: Written | None) -> None:
        """The last answer, in case it is to be continued; None: nothing was written that could be."""
        self._written = answer

    def _num_left_out_before(self, messages: Sequence[Message]) -> int:
        """Of this conversation, as far as can be told."""
        count = len(self._left_out)
        return count if _oldest(messages, count) == self._left_out else 0

    def _left_at(self, request: Submit, sampling: SamplingConfig) -> Prepared | None:
        """The last answer's own ids, where it is what shall be continued."""
        left = self._written
        if left is None or not request.continues or not request.messages:
            return None
        *before, last = request.messages
        is_same = (
            tuple(before) == _question(left.request)
            and last.role == "assistant"
            and last.content == left.text
            and last.thinking in ("", left.thinking)
            and (request.thinking, sampling.stop) == (left.request.thinking, left.stop)
        )
        limit = self._context_tok - reserve_tok(self._context_tok, sampling.max_new_tok)
        if not is_same or (request.trims_oldest and len(left.tokens) > limit):
            return None
        check_fits(len(left.tokens), self._context_tok)
        return Prepared(list(left.tokens), left.stream, left.num_left_out, is_resumed=True)

    def _begins(self, request: Submit, prompt: Sequence[int]) -> str:
        """Where the answer stands: some templates open the thinking themselves."""
        last: Message = request.messages[-1]
        if request.continues and (last.content or last.thinking):
            return ANSWER if last.content else MID_THINKING
        if self._marks is None:
            return START
        return self._marks.begins(str(self._tokenizer.decode(prompt[-_PROMPT_END_TOK:])))


def _oldest(messages: Sequence[Message], count: int) -> tuple[Message, ...]:
    """The first messages that are not the system's."""
    return tuple([message for message in messages if message.role != "system"][:count])


def _question(request: Submit) -> tuple[Message, ...]:
    """What the answer answers: without the part of it that was there before."""
    return request.messages[:-1] if request.continues else request.messages
