"""SentencePiece's BPE by the library `tokenizers`: merges in the order of scores, unknown characters as bytes."""

from __future__ import annotations

from typing import Final

from tokenizers import Tokenizer, decoders, models, normalizers

from engine.checkpoint.gguf.metadata import Metadata

_SPACE: Final = "▁"
_SCORES: Final = "tokenizer.ggml.scores"


def sentencepiece_backend(metadata: Metadata, tokens: list[str], kinds: list[int]) -> Tokenizer:
    """Makes the tokenizer, added tokens and frame excepted. Raises CheckpointError.

    A text gets a space before it, as SentencePiece's makers have it, where the file does not say otherwise.
    """
    scores = metadata.numbers(_SCORES, len(tokens))
    numbers = {token: number for number, token in enumerate(tokens)}
    unknown = metadata.integer("tokenizer.ggml.unknown_token_id", 0, len(tokens) - 1, default=0)
    try:
        backend = Tokenizer(
            models.BPE(
                numbers,
                _merges(tokens, scores, kinds, numbers),
                unk_token=tokens[unknown],
                fuse_unk=True,
                byte_fallback=True,
            )
        )
    except Exception as error:  # the library raises its own kind
        raise metadata.problem(_SCORES, f"cannot be used: {' '.join(str(error).split())[:200]}") from error
    has_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", default=True)
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    if has_prefix:
        steps.insert(0, normalizers.Prepend(_SPACE))
    backend.normalizer = normalizers.Sequence(steps)
    pieces: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if has_prefix:
        pieces.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(pieces)
    return backend


def _merges(tokens: list[str], scores: list[float], kinds: list[int], numbers: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the highest score of the result first."""
    ordinary = 1
    found = []
    for number, token in enumerate(tokens):
        if kinds[number] != ordinary:
            continue
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in numbers and right in numbers:
                found.append((-scores[number], numbers[left], numbers[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]
