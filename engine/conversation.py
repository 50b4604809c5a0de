"""Between messages and token ids: the chat template, end tokens, and text that comes out piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream
from transformers import GenerationConfig

from engine.api import Message
from engine.errors import ContextFullError, UnsupportedModelError


def encode(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """The prompt's token ids, the assistant's turn opened. Raises UnsupportedModelError when the template refuses."""
    turns = [{"role": message.role, "content": message.content} for message in messages]
    if not getattr(tokenizer, "chat_template", None):
        return list(tokenizer(_plain(messages))["input_ids"])
    try:
        return _templated(tokenizer, turns)
    except Exception as error:  # templates are programs of the model's authors and raise what they like
        if turns and turns[0]["role"] == "system":
            return _without_system_role(tokenizer, turns, error)
        raise _refused(error) from error


def _refused(error: Exception) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"The model's chat template refused the conversation: {error}",
        "Start a new chat; if that is refused too, the model's chat template is damaged or of another kind.",
    )


def _templated(tokenizer: Any, turns: list[dict[str, str]]) -> list[int]:
    encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=True)
    return list(encoded["input_ids"])


def _without_system_role(tokenizer: Any, turns: list[dict[str, str]], error: Exception) -> list[int]:
    """Some templates know no system role: its text goes before the first message of the user."""
    system, rest = turns[0]["content"], [dict(turn) for turn in turns[1:]]
    if not rest:
        raise _refused(error) from error
    rest[0]["content"] = f"{system}\n\n{rest[0]['content']}"
    try:
        return _templated(tokenizer, rest)
    except Exception as second:  # as above
        raise _refused(second) from second


def _plain(messages: Sequence[Message]) -> str:
    """A model without a chat template is given the text, role by role."""
    return "".join(f"{message.role.capitalize()}: {message.content}\n" for message in messages) + "Assistant:"


def end_tokens(tokenizer: Any, generation_config: GenerationConfig, model_config: Any) -> frozenset[int]:
    """Every id that ends an answer, from the generation config, the model's config and the tokenizer."""
    found: set[int] = set()
    for value in (
        generation_config.eos_token_id,
        getattr(model_config, "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
    ):
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)


def common_prefix(cached: Sequence[int], prompt: Sequence[int]) -> int:
    """How many leading ids agree; less than the prompt, whose last token must be computed for its logits."""
    limit = min(len(cached), len(prompt) - 1)
    for position in range(limit):
        if cached[position] != prompt[position]:
            return position
    return max(limit, 0)


def check_fits(num_prompt_tok: int, context_tok: int) -> None:
    """Raises ContextFullError when no token could be written after the prompt."""
    if num_prompt_tok >= context_tok:
        raise ContextFullError(
            f"The conversation has {num_prompt_tok} tokens; the context holds {context_tok}.",
            "Start a new chat, shorten the message, or give the engine more context (--context) and memory.",
            num_prompt_tok,
            context_tok,
        )


class TextStream:
    """Token ids in, text out: whole characters only, and nothing of a stop string."""

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._backend: Any = tokenizer.backend_tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stop = [text for text in stop if text]
        self._held = ""
        self.is_stopped = False
        """A stop string was met."""

    def push(self, token: int) -> str:
        """The text that is certain after this token; may be empty."""
        piece = self._stream.step(self._backend, token) or ""
        if not self._stop:
            return piece
        self._held += piece
        found = [(at + len(text), at) for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self.is_stopped = True
            _, start = min(found)  # the one complete first, so that it does not matter how tokens cut the text
            text, self._held = self._held[:start], ""
            return text
        keep = self._possible_stop()
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text

    def _possible_stop(self) -> int:
        """How many characters at the end could be the beginning of a stop string."""
        longest = max(len(text) for text in self._stop) - 1
        for count in range(min(longest, len(self._held)), 0, -1):
            if any(text.startswith(self._held[-count:]) for text in self._stop):
                return count
        return 0

    def finish(self) -> str:
        """What was held back and did not become a stop string."""
        text, self._held = self._held, ""
        return "" if self.is_stopped else text
