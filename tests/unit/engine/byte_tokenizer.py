"""A tokenizer of bytes, and chat templates for it."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast


def byte_tokenizer(special: tuple[str, ...] = (), added: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """One token a byte, a few longer ones, and two special tokens; more of them, and other added ones, as told."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: number for number, piece in enumerate([*alphabet, "ab", "abc", "bc", "Ġa"])}
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("Ġ", "a")]
    backend = Tokenizer(BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in special])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def with_template(template: str | None, special: tuple[str, ...] = (), added: tuple[str, ...] = ()) -> Any:
    """The tokenizer with a chat template."""
    tokenizer = byte_tokenizer(special, added)
    tokenizer.chat_template = template
    return tokenizer


class SlowTokenizer:
    """The same without the library's own tokenizer behind it."""

    def __init__(self) -> None:
        self._tokenizer = byte_tokenizer()
        self.added_tokens_decoder = self._tokenizer.added_tokens_decoder

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and m.reasoning_content is defined and loop.last %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""After Qwen3's: thinking on by default, opened by the model; earlier thinking is left out."""

OPENED = QWEN.replace("<think>\n\n</think>\n\n{% endif %}{% endif %}", "{% else %}<think>\n{% endif %}{% endif %}")
"""After DeepSeek-R1's and Qwen3-Thinking's: the template opens the thinking."""

HARMONY = (
    "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "<|start|>system<|message|>Reasoning: {{ reasoning_effort }}<|end|>"
    "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
    "<|message|>{{ m.content }}"
    "{% if loop.last and m.role == 'assistant' %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
"""After gpt-oss's."""
HARMONY_MARKS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|constrain|>")
