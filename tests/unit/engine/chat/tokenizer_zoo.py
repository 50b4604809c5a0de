"""Tokenizers of the kinds that chat models have, each built in a moment."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from transformers import PreTrainedTokenizerFast

from tests.unit.engine.byte_tokenizer import byte_tokenizer

MARKS = ("<|im_start|>", "<|im_end|>")
THINK = ("<think>", "</think>")
BYTES = [f"<0x{number:02X}>" for number in range(256)]
LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789<|>/_.,:!?'[]{}()-", "é", "€"]


def _finished(backend: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>", *MARKS)])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in THINK])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", **options)


def _sentencepiece_vocab() -> tuple[dict[str, int], list[tuple[str, str]]]:
    pieces = ["<unk>", *BYTES, "▁", *LETTERS, "▁a", "ab", "▁ab", "im", "▁▁"]
    merges = [("▁", "a"), ("a", "b"), ("▁a", "b"), ("i", "m"), ("▁", "▁")]
    return {piece: number for number, piece in enumerate(pieces)}, merges


def llama_like() -> PreTrainedTokenizerFast:
    """SentencePiece BPE with byte fallback, spaces by a normalizer: Llama 2, Mixtral."""
    vocab, merges = _sentencepiece_vocab()
    backend = Tokenizer(BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _finished(backend, unk_token="<unk>")


def gemma_like() -> PreTrainedTokenizerFast:
    """SentencePiece BPE with byte fallback and no space before the text."""
    vocab, merges = _sentencepiece_vocab()
    backend = Tokenizer(BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _finished(backend, unk_token="<unk>")


def metaspace() -> PreTrainedTokenizerFast:
    """Unigram with byte fallback, the space before the first word by the pre-tokenizer."""
    vocab, _ = _sentencepiece_vocab()
    backend = Tokenizer(Unigram([(piece, -float(3 + number % 7)) for piece, number in vocab.items()], 0, True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()]
    )
    return _finished(backend, unk_token="<unk>")


def wordpiece(**options: Any) -> PreTrainedTokenizerFast:
    """Words and pieces of them."""
    pieces = ["[UNK]", *LETTERS, *(f"##{letter}" for letter in LETTERS), "##ab", "don", "do", "not", "n't"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return _finished(backend, unk_token="[UNK]", **options)


def words() -> PreTrainedTokenizerFast:
    """Whole words, spaces removed before punctuation when decoding."""
    vocab = {word: number for number, word in enumerate(["[UNK]", "a", "b", ".", ",", "'", "n't", "'s", "don", "?"])}
    backend = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _finished(backend, unk_token="[UNK]", clean_up_tokenization_spaces=True)


def suffixed() -> PreTrainedTokenizerFast:
    """BPE that marks the ends of words."""
    vocab = {piece: number for number, piece in enumerate(["<unk>", *LETTERS, *(f"{x}</w>" for x in LETTERS)])}
    backend = Tokenizer(BPE(vocab, [], end_of_word_suffix="</w>", unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return _finished(backend, unk_token="<unk>")


def repeating() -> PreTrainedTokenizerFast:
    """A decoder that joins equal neighbours, however far back they reach."""
    vocab = {piece: number for number, piece in enumerate(["<pad>", *LETTERS])}
    backend = Tokenizer(WordLevel(vocab, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.CTC(pad_token="<pad>", word_delimiter_token="|", cleanup=False)
    return _finished(backend)


def byte_level() -> PreTrainedTokenizerFast:
    """Bytes, a few longer tokens, marks as added tokens."""
    return byte_tokenizer(special=MARKS, added=THINK)


ZOO = {
    "byte level": byte_level(),
    "llama": llama_like(),
    "gemma": gemma_like(),
    "metaspace": metaspace(),
    "wordpiece": wordpiece(),
    "cleaned wordpiece": wordpiece(clean_up_tokenization_spaces=True),
    "words": words(),
    "suffixed": suffixed(),
    "repeating": repeating(),
}
