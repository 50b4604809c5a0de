"""Which tokenizers of GGUF files are read, by the names that the files give them. Light."""

from __future__ import annotations

from typing import Final

from engine.backends.tokenizers.splitters import SPLITTERS
from engine.checkpoint.gguf.metadata import Metadata
from engine.errors import UnsupportedModelError
from offload.bounded_json import shown

BYTE_LEVEL, SENTENCEPIECE = "gpt2", "llama"
"""Kinds, by `tokenizer.ggml.model`: byte-level BPE, and SentencePiece's BPE."""
_KIND: Final = "tokenizer.ggml.model"
_RULE: Final = "tokenizer.ggml.pre"
_DEFAULT_RULE: Final = "default"


def kind_of_tokenizer(metadata: Metadata) -> str:
    """Its kind. Raises UnsupportedModelError, by name, for one that is not read, and CheckpointError."""
    kind = metadata.text(_KIND)
    if kind not in (BYTE_LEVEL, SENTENCEPIECE):
        raise UnsupportedModelError(
            f"{metadata.file.paths[0]}: its tokenizer is of the kind {shown(kind)} ({_KIND}), which is not read.",
            "Kinds that are read: gpt2 (byte-level BPE) and llama (SentencePiece BPE). Use the model's safetensors "
            "checkpoint.",
        )
    return kind


def splitting_rule(metadata: Metadata) -> str:
    """How a byte-level tokenizer splits texts. Raises UnsupportedModelError, by name, for a rule that is not known, and
    CheckpointError."""
    rule = metadata.text(_RULE, default=_DEFAULT_RULE)
    if rule not in SPLITTERS:
        raise UnsupportedModelError(
            f"{metadata.file.paths[0]}: its tokenizer splits texts by the rule {shown(rule)} ({_RULE}), which is not "
            "known.",
            "By another rule its answers would be wrong. Use the model's safetensors checkpoint, or another model.",
        )
    return rule


def require_known_tokenizer(metadata: Metadata) -> None:
    """Raises UnsupportedModelError for one that cannot be read, and CheckpointError."""
    if kind_of_tokenizer(metadata) == BYTE_LEVEL:
        splitting_rule(metadata)
