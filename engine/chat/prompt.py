"""From a request to the ids of its prompt and the decoding of its answer; the last answer is kept to be continued."""

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
from engine.errors import CheckpointError, ConfigError

_PROMPT_END_TOK = 16
"""Tokens at a prompt's end in which the template may have opened the thinking."""


class PreparedPrompt(NamedTuple):
    """A prompt, and the stream that decodes its answer."""

    tokens: list[int]
    stream: TextStream
    num_left_out: int
    """Messages left out, so that it fits into the context."""
    is_resumed: bool = False
    """The prompt ends with the tokens of the last answer, which goes on."""


class WrittenAnswer(NamedTuple):
    """An answer that may be continued: its request, its whole text, and the ids of prompt and answer."""

    request: Submit
    stop: tuple[str, ...]
    text: str
    thinking: str
    tokens: list[int]
    stream: TextStream
    num_left_out: int


class ChatPrompts:
    """Prompts for one model. Keeps the last answer's ids: a continuation goes on from them, not from its text."""

    def __init__(
        self,
        tokenizer: Any,
        context_tok: int,
        is_cancelled: Callable[[], bool] = lambda: False,
        vocabulary_tok: int | None = None,
    ) -> None:
        """Renders the chat template a few times. `vocabulary_tok` is how many ids the model has embeddings for.

        Raises UnsupportedModelError for a template that exceeds its limits or leaves out what the user says,
        CheckpointError for one that is no text, and WaitCancelled.
        """
        self._tokenizer, self._context_tok, self._vocabulary_tok = tokenizer, context_tok, vocabulary_tok
        self._encoder = ConversationEncoder(tokenizer, is_cancelled)
        self.template = self._encoder.template
        self.template.check()
        self._choices = find_choices(self.template)
        self._marks = find_format(tokenizer)
        self._written: WrittenAnswer | None = None
        self._left_out: Sequence[Message] = ()

    @property
    def thinking_choices(self) -> tuple[str, ...]:
        """What `Submit.thinking` may say."""
        return tuple(self._choices)

    def prepare(self, request: Submit, sampling: SamplingConfig) -> PreparedPrompt:
        """Raises what ConversationEncoder.encode does, ContextFullError, and ConfigError for a thinking that the model
        does not have."""
        variables = self._choices.get(request.thinking or "", {})
        if request.thinking is not None and not variables:
            known = ", ".join(self._choices) or "nothing: its chat template has no such switch"
            raise ConfigError(f"The model's thinking cannot be set to {request.thinking!r}.", f"It can be: {known}.")
        left = self._resumed(request, sampling)
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
        self._check_known(fitted.prompt)
        self._left_out = _oldest(request.messages, fitted.num_left_out)
        begins = self._begins(request, fitted.prompt)
        before = fitted.prompt if begins in (ANSWER, MID_THINKING) else ()
        stream = TextStream(self._tokenizer, sampling.stop, self._marks, begins, before)
        return PreparedPrompt(fitted.prompt, stream, fitted.num_left_out)

    def count(self, text: str) -> int:
        """How many tokens a text takes inside a message. Raises CheckpointError."""
        return self._encoder.count(text)

    def remember(self, answer: WrittenAnswer | None) -> None:
        """The last answer, in case it is to be continued; None: nothing was written that could be."""
        self._written = answer

    def _check_known(self, prompt: Sequence[int]) -> None:
        highest = max(prompt, default=0)
        if self._vocabulary_tok is not None and highest >= self._vocabulary_tok:
            raise CheckpointError(
                f"The tokenizer makes token {highest} ({self._tokenizer.decode([highest])[:40]!r}) of this text; "
                f"config.json says that the model has {self._vocabulary_tok} of them (vocab_size).",
                "The tokenizer files are not this model's; fetch them again.",
            )

    def _num_left_out_before(self, messages: Sequence[Message]) -> int:
        """Of this conversation, as far as can be told."""
        count = len(self._left_out)
        return count if _oldest(messages, count) == self._left_out else 0

    def _resumed(self, request: Submit, sampling: SamplingConfig) -> PreparedPrompt | None:
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
        return PreparedPrompt(list(left.tokens), left.stream, left.num_left_out, is_resumed=True)

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
