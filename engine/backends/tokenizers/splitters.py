"""How byte-level BPE tokenizers split a text into words before they merge, by the names that GGUF files give the rules.

Source of names and rules: llama.cpp's `llama-vocab.cpp` (`tokenizer.ggml.pre`). Each rule is a list of patterns; one
after the other cuts what the last one left, and the pieces between two matches are words as well.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"
QWEN2_PATTERN: Final = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}|{_REST}"
"""The rule of `qwen2`, as the model's own files write it."""
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)


class Splitter(NamedTuple):
    """One rule."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    """Whether a word that is a token is taken as it is, without merging."""
    adds_bos: bool = False
    """Whether a text begins with the bos token where the file does not say."""

    def pre_tokenizer(self) -> PreTokenizer:
        """As the library takes it."""
        splits: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


_DIGITS = Splitter((r"\p{N}", _GPT2))
_RULES: Final[tuple[tuple[str, Splitter], ...]] = (
    ("gpt-2 phi-2 jina-es jina-de mellum a.x-4.0 gigachat exaone4 mpt olmo jais trillion", Splitter((_GPT2,))),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", _DIGITS),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", Splitter((_LLAMA3,), True, True)),
    ("dbrx smaug-bpe chatglm-bpe", Splitter((_LLAMA3,))),
    ("glm4", Splitter((_LLAMA3,), whole_words=True)),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", Splitter((_QWEN2,))),
    ("qwen35", Splitter((_QWEN35,))),
    ("deepseek-v3 hunyuan-dense joyai-llm", Splitter(_DEEPSEEK3)),
    (
        "default",
        Splitter((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    ),
)
SPLITTERS: Final = {name: splitter for names, splitter in _RULES for name in names.split()}
"""By the name in `tokenizer.ggml.pre`."""
