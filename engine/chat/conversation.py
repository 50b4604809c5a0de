"""From the messages of a conversation to token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.api import Message
from engine.chat.chat_template import ChatTemplate
from engine.chat.control_tokens import ControlTokens
from engine.chat.prompt_encoder import PromptEncoder
from engine.chat.thinking_marks import find_format
from engine.errors import CheckpointError, ConfigError

_NO_VARIABLES: Mapping[str, object] = {}


class ConversationEncoder:
    """For one model: its chat template, and what in people's text must not become a control token."""

    def __init__(self, tokenizer: Any, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """`is_cancelled` ends a rendering with WaitCancelled. Raises CheckpointError for a template that is no text."""
        self.template = ChatTemplate(tokenizer, is_cancelled)
        self._marks = find_format(tokenizer)
        marks = self._marks.marks if self._marks is not None else ()
        self._encoder = PromptEncoder(tokenizer, ControlTokens(tokenizer, self.template.text, marks))

    def encode(
        self, messages: Sequence[Message], variables: Mapping[str, object] = _NO_VARIABLES, continues: bool = False
    ) -> list[int]:
        """The prompt's token ids, the assistant's turn opened; or, with `continues`, its partial answer left open.

        `variables` go to the chat template. Raises UnsupportedModelError when the template refuses, exceeds its limits
        or leaves a message out, CheckpointError when the tokenizer fails, ConfigError when there is no answer to
        continue or nothing to encode, WaitCancelled.
        """
        if continues and (not messages or messages[-1].role != "assistant"):
            raise ConfigError("There is no answer to continue.", "Ask a question first.")
        messages = [_printable(message) for message in messages]
        if continues and not messages[-1].content:
            return self._continued_thinking(messages, variables)
        if not self.template:
            return self._encode(messages, lambda shown: _plain(shown, continues), adds_special=True)
        return self._encode(messages, lambda shown: self.template.render(shown, variables, continues))

    def count(self, text: str) -> int:
        """How many tokens a text takes inside a message, give or take what joins it to the template's. Raises
        CheckpointError."""
        return len(self._encoder.encode(lambda hide: hide(text), [text])) if text else 0

    def _continued_thinking(self, messages: Sequence[Message], variables: Mapping[str, object]) -> list[int]:
        """The answer was stopped while the model thought: its thinking is opened again, and left open."""
        marks = self._marks
        if not messages[-1].thinking or marks is None or not self.template:
            return self.encode(messages[:-1], variables)

        def render(shown: Sequence[Message]) -> str:
            text = self.template.render(shown[:-1], variables)
            if not text.rstrip().endswith(marks.opening):
                text += marks.opening if marks.is_harmony else marks.opening + "\n"
            return text + shown[-1].thinking

        return self._encode(messages, render)

    def _encode(
        self, messages: Sequence[Message], render: Callable[[Sequence[Message]], str], adds_special: bool = False
    ) -> list[int]:
        texts = [text for message in messages for text in (message.content, message.thinking)]
        ids = self._encoder.encode(
            lambda hide: render(
                [Message(message.role, hide(message.content), hide(message.thinking)) for message in messages]
            ),
            texts,
            adds_special,
        )
        if not ids and any(text.strip() for text in texts):
            raise CheckpointError(
                "The model's tokenizer makes no tokens of this conversation.",
                "tokenizer.json or tokenizer_config.json is damaged, or of another model: fetch them again.",
            )
        if not ids:
            raise ConfigError("The prompt of this conversation has no tokens.", "Write a message.")
        return ids


def encode(tokenizer: Any, messages: Sequence[Message], is_cancelled: Callable[[], bool] = lambda: False) -> list[int]:
    """The ids of one prompt, as ConversationEncoder encodes it."""
    return ConversationEncoder(tokenizer, is_cancelled).encode(messages)


def _plain(messages: Sequence[Message], continues: bool) -> str:
    """A model without a chat template is given the text, role by role."""
    text = "\n".join(f"{message.role.capitalize()}:{_spaced(message.content)}" for message in messages)
    return text if continues else f"{text}\nAssistant:"


def _spaced(content: str) -> str:
    """With the space after the colon that an answer brings along itself."""
    return content if content[:1].isspace() else f" {content}"


def _printable(message: Message) -> Message:
    """Halves of surrogate pairs are no characters: a terminal can deliver them, and no tokenizer can encode them."""
    content, thinking = (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for text in (message.content, message.thinking)
    )
    return replace(message, content=content, thinking=thinking)
