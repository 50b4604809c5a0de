"""The tokenizer that a GGUF file carries: vocabulary, kinds of tokens, merges or scores, and chat templates.

Source of the meaning of the keys: the GGUF specification, and llama.cpp's `llama-vocab.cpp` where that says nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.processors import TemplateProcessing

from engine.backends.tokenizers.fast_tokenizer import FastTokenizer, SpecialTokens
from engine.backends.tokenizers.known_tokenizers import BYTE_LEVEL, kind_of_tokenizer, splitting_rule
from engine.backends.tokenizers.sentencepiece import sentencepiece_backend
from engine.backends.tokenizers.splitters import SPLITTERS
from engine.checkpoint.gguf.metadata import Metadata
from offload.bounded_json import shown

_PREFIX: Final = "tokenizer.ggml."
_TEMPLATE: Final = "tokenizer.chat_template"
_MAX_TEMPLATE_CHARACTERS = 1 << 20
_MAX_TEMPLATES = 32
_MAX_TOKEN_CHARACTERS = 1000
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Kinds of tokens, as `tokenizer.ggml.token_type` numbers them."""
_END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
_ENDS_BY_TEXT: Final = (
    "<|eot_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<|return|>",
    "<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
)
"""Control tokens that end an answer wherever they exist; most files name one of several ends in their keys."""


class GgufTokenizer(NamedTuple):
    """The tokenizer, and the ids that end an answer."""

    tokenizer: FastTokenizer
    end_tokens: frozenset[int]


class Vocabulary(NamedTuple):
    """Tokens by their ids."""

    tokens: list[str]
    kinds: list[int]

    def of_kind(self, *kinds: int) -> list[int]:
        """The ids of the tokens of these kinds."""
        return [number for number, kind in enumerate(self.kinds) if kind in kinds]


def read_tokenizer(metadata: Metadata) -> GgufTokenizer:
    """Makes the tokenizer. Raises CheckpointError for what is damaged, UnsupportedModelError, by name, for a model or
    a splitting rule that is not known."""
    vocabulary = _vocabulary(metadata)
    special = SpecialTokens(
        bos=_token_id(metadata, "bos_token_id", vocabulary),
        eos=_token_id(metadata, "eos_token_id", vocabulary),
        unk=_token_id(metadata, "unknown_token_id", vocabulary),
        pad=_token_id(metadata, "padding_token_id", vocabulary),
    )
    ends = {_token_id(metadata, key, vocabulary) for key in _END_KEYS} - {None}
    is_byte_level = kind_of_tokenizer(metadata) == BYTE_LEVEL
    if is_byte_level:
        backend, adds_bos = _byte_level(metadata, vocabulary)
    else:
        backend, adds_bos = sentencepiece_backend(metadata, vocabulary.tokens, vocabulary.kinds), True
    steering = {*ends, special.bos, special.eos} - {None}
    _add_tokens(backend, vocabulary, {number for number in steering if number is not None})
    _add_frame(metadata, backend, special, adds_bos)
    by_text = {number for number in vocabulary.of_kind(CONTROL) if vocabulary.tokens[number] in _ENDS_BY_TEXT}
    texts = dict.fromkeys(vocabulary.of_kind(UNUSED), "") | (_own_texts(backend, vocabulary) if is_byte_level else {})
    tokenizer = FastTokenizer(backend, special, read_templates(metadata), str(metadata.file.paths[0]), texts)
    return GgufTokenizer(tokenizer, frozenset({number for number in ends if number is not None} | by_text))


def _vocabulary(metadata: Metadata) -> Vocabulary:
    key = f"{_PREFIX}tokens"
    tokens = [token or f"[EMPTY_{number}]" for number, token in enumerate(metadata.texts(key))]
    if len(set(tokens)) < len(tokens):
        seen: set[str] = set()
        twice = next(token for token in tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]
        raise metadata.problem(key, f"holds {shown(twice)} twice")
    if not tokens:
        raise metadata.problem(key, "is empty")
    kinds_key = f"{_PREFIX}token_type"
    if not metadata.has(kinds_key):
        return Vocabulary(tokens, [NORMAL] * len(tokens))
    return Vocabulary(tokens, metadata.integers(kinds_key, NORMAL, BYTE, len(tokens)))


def _token_id(metadata: Metadata, key: str, vocabulary: Vocabulary) -> int | None:
    """None: the file has none, or writes -1 (or 2^32 - 1) for it."""
    name = f"{_PREFIX}{key}"
    number = metadata.integer(name, -1, (1 << 32) - 1, default=-1)
    if number in (-1, (1 << 32) - 1):
        return None
    if number >= len(vocabulary.tokens):
        raise metadata.problem(name, f"is {number}, and there are {len(vocabulary.tokens)} tokens")
    return number


def _byte_level(metadata: Metadata, vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    """(a byte-level BPE tokenizer, whether texts begin with bos where the file does not say)."""
    splitter = SPLITTERS[splitting_rule(metadata)]
    key = f"{_PREFIX}merges"
    numbers = {token: number for number, token in enumerate(vocabulary.tokens)}
    merges = [tuple(merge.split(" ")) for merge in metadata.texts(key)]
    if wrong := next((merge for merge in merges if len(merge) != 2), None):
        raise metadata.problem(key, f"holds {shown(' '.join(wrong))}, which are no two tokens")
    try:
        backend = Tokenizer(models.BPE(numbers, merges, ignore_merges=splitter.whole_words))  # type: ignore[arg-type]
    except Exception as error:  # the library raises its own kind for a merge that makes no token
        raise metadata.problem(key, f"does not fit the tokens: {' '.join(str(error).split())[:200]}") from error
    backend.pre_tokenizer = splitter.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend, splitter.adds_bos


def _add_tokens(backend: Tokenizer, vocabulary: Vocabulary, steering: set[int]) -> None:
    """Makes the library look for control and user-defined tokens in a text. Their ids are those of the vocabulary."""
    added = []
    for number in vocabulary.of_kind(CONTROL, USER_DEFINED, UNKNOWN):
        text = vocabulary.tokens[number]
        if len(text) <= _MAX_TOKEN_CHARACTERS:
            is_special = vocabulary.kinds[number] != USER_DEFINED or number in steering
            added.append(AddedToken(text, special=is_special, normalized=False))
    known = set(vocabulary.of_kind(CONTROL, USER_DEFINED, UNKNOWN))
    added += [
        AddedToken(vocabulary.tokens[number], special=True, normalized=False) for number in sorted(steering - known)
    ]
    backend.add_tokens(added)


def _add_frame(metadata: Metadata, backend: Tokenizer, special: SpecialTokens, adds_bos: bool) -> None:
    """Has texts begin with bos and end with eos, where the file says so."""
    has_bos = metadata.flag(f"{_PREFIX}add_bos_token", default=adds_bos) and special.bos is not None
    has_eos = metadata.flag(f"{_PREFIX}add_eos_token", default=False) and special.eos is not None
    if not (has_bos or has_eos):
        return
    pieces, used = ["$A"], []
    if has_bos and special.bos is not None:
        pieces.insert(0, "<bos>")
        used.append(("<bos>", special.bos))
    if has_eos and special.eos is not None:
        pieces.append("<eos>")
        used.append(("<eos>", special.eos))
    backend.post_processor = TemplateProcessing(single=pieces, special_tokens=used)


def _own_texts(backend: Tokenizer, vocabulary: Vocabulary) -> dict[int, str]:
    """Of tokens that are looked for in a text: that text, where the decoder would take its letters for bytes."""
    texts = {number: vocabulary.tokens[number] for number in vocabulary.of_kind(CONTROL, USER_DEFINED, UNKNOWN)}
    return {
        number: text
        for number, text in texts.items()
        if not text.isascii() and backend.decode([number], skip_special_tokens=False) != text
    }


def read_templates(metadata: Metadata) -> str | dict[str, str] | None:
    """The chat template; several by name where there are more than the default one."""
    found: dict[str, str] = {}
    names_key = "tokenizer.chat_templates"
    names = metadata.texts(names_key, _MAX_TEMPLATES) if metadata.has(names_key) else []
    for name, key in (("default", _TEMPLATE), *((name, f"{_TEMPLATE}.{name}") for name in names)):
        if not metadata.has(key):
            continue
        found[name] = metadata.text(key)
        if len(found[name]) > _MAX_TEMPLATE_CHARACTERS:
            raise metadata.problem(
                key, f"has {len(found[name])} characters, where at most {_MAX_TEMPLATE_CHARACTERS} are read"
            )
    if not found:
        return None
    return found["default"] if list(found) == ["default"] else found
