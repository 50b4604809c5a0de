"""The token ids that end an answer. Stop strings: see `text_stream`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.api import Message
from engine.chat.chat_template import PROBE, ChatTemplate, MessageLeftOut
from engine.chat.thinking_marks import HARMONY, find_format
from engine.sampling.defaults import ModelDefaults, end_token_ids


def end_tokens(
    tokenizer: Any, defaults: ModelDefaults, configs: Iterable[Mapping[str, Any]], template: ChatTemplate
) -> frozenset[int]:
    """Every id that ends an answer: from the generation config, the model's `configs`, the tokenizer, and what the chat
    template closes an assistant's message with. Raises CheckpointError for an id in config.json that is none."""
    found = set(defaults.end_tokens)
    for config in configs:
        found |= end_token_ids(config.get("eos_token_id"), "config.json")
    closing = _closing_token(tokenizer, template)
    own = getattr(tokenizer, "eos_token_id", None)
    return frozenset(found | {token for token in (own, closing) if token is not None})


def _closing_token(tokenizer: Any, template: ChatTemplate) -> int | None:
    """The added token that follows the assistant's text in the template; None: there is none, or it is a channel's."""
    if not template:
        return None
    try:
        text = template.probe([Message("user", PROBE), Message("assistant", PROBE)], {}, opens_answer=False)
    except MessageLeftOut:  # the chat is refused when there is an answer in it
        return None
    if text is None:
        return None
    _, _, closing = text.rpartition(PROBE)
    added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
    longest = max((text for text in added if closing.lstrip().startswith(text)), key=len, default="")
    is_channel = longest == HARMONY.closing and find_format(tokenizer) is HARMONY
    return None if is_channel else added.get(longest)
