"""How byte-level BPE tokenizers split a text into words before they merge, by the names that GGUF files give the rules.

Source of the names: llama.cpp's `llama-vocab.cpp` (`tokenizer.ggml.pre`). Source of the rules: the same, and where it
says that it writes a model's own rule only roughly (upper and lower case of letters beyond ASCII, combining marks), the
model's own one. Each rule is a list of patterns; one after the other cuts what the last one left, and the pieces
between two matches are words as well. Light: the library is imported where a tokenizer is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_AFTER_WORDS = rf"{_SIGNS}|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_AFTER_WORDS}"
_QWEN2 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_AFTER_WORDS}"
QWEN2_PATTERN: Final = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_LETTERS}|\p{{N}}|{_AFTER_WORDS}"
"""The rule of `qwen2`, as the model's own files write it."""
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_CASED = rf"{_BEFORE}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
_O200K = rf"{_CASED}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_NOT_HAN = r"&&[^\p{Han}]]"
_KIMI = (
    r"[\p{Han}]+|"
    + _CASED.replace(_UPPER, _UPPER[:-1] + _NOT_HAN).replace(_LOWER, _LOWER[:-1] + _NOT_HAN)
    + rf"|\p{{N}}{{1,3}}|{_AFTER_WORDS}"
)
_BAILING = rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_LETTERS}|\p{{N}}|{_SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_PUNCTUATED = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_MARKED = rf"{_PUNCTUATED}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_DEEPSEEK3 = (r"\p{N}{1,3}", r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+", _MARKED)
_CJK = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_YOUNGER_LETTERS = (
    r"\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2D}\x{A790}-\x{A7FA}\x{AB30}-\x{AB68}"
    r"\x{10570}-\x{105BC}\x{16E40}-\x{16E7F}\x{1D400}-\x{1DF1E}"
)
"""Letters with case that the rule's own list of ranges lacks."""
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[\p{{Lu}}\p{{Ll}}\p{{Lt}}&&[^{_YOUNGER_LETTERS}]]+",
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}-\x{3002}]+",
    r"\s+$",
    _CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")
_NORDIC = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4},)]+"


class Splitter(NamedTuple):
    """One rule."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    """Whether a word that is a token is taken as it is, without merging."""
    adds_bos: bool = False
    """Whether a text begins with the bos token where the file does not say."""

    def pre_tokenizer(self) -> PreTokenizer:
        """As the library takes it."""
        from tokenizers import Regex
        from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

        splits: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


_DIGITS = Splitter((r"\p{N}", _GPT2))
_RULES: Final[tuple[tuple[str, Splitter], ...]] = (
    (
        "gpt-2 phi-2 jina-es jina-de mellum a.x-4.0 gigachat exaone4 mpt olmo jais trillion granite-docling",
        Splitter((_GPT2,)),
    ),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", _DIGITS),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", Splitter((_LLAMA3,), True, True)),
    ("dbrx smaug-bpe chatglm-bpe", Splitter((_LLAMA3,))),
    ("glm4 glm5", Splitter((_LLAMA3,), whole_words=True)),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", Splitter((_QWEN2,))),
    ("laguna", Splitter((r"[^\n]+|[\n]+", _QWEN2))),
    ("qwen35", Splitter((_QWEN35,))),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", Splitter(_DEEPSEEK3)),
    ("deepseek-llm", Splitter(_DEEPSEEK_LLM)),
    ("deepseek-coder", Splitter(_DEEPSEEK_CODER)),
    ("tekken", Splitter((_TEKKEN,), True, True)),
    ("gpt-4o llama4 kanana2 minimax-m2", Splitter((_O200K,))),
    ("kimi-k2", Splitter((_KIMI,))),
    ("bailingmoe bailingmoe2 llada-moe", Splitter((_BAILING,))),
    ("exaone-moe", Splitter((_EXAONE_MOE,))),
    ("seed-coder", Splitter((_SEED,))),
    ("minicpm5", Splitter((r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), whole_words=True)),
    ("falcon", Splitter((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))),
    ("bloom poro-chat gpt3-finnish", Splitter((_NORDIC,))),
    ("viking", Splitter((_NORDIC, r"\p{N}"))),
    (
        "default",
        Splitter((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    ),
)
SPLITTERS: Final = {name: splitter for names, splitter in _RULES for name in names.split()}
"""By the name in `tokenizer.ggml.pre`."""
