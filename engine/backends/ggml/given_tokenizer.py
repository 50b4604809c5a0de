"""The tokenizer of a folder that `--config` named."""

from __future__ import annotations

from typing import Any

from engine.backends.ggml.given_config import GivenConfig, num_rows
from engine.backends.ggml.tokenizer_of_folder import TokenizerOfFolder
from engine.backends.tokenizers.fast_tokenizer import FastTokenizer
from engine.backends.tokenizers.gguf_tokenizer import read_templates
from engine.checkpoint.gguf.metadata import Metadata


def load_given_tokenizer(given: GivenConfig, made: TokenizerOfFolder, metadata: Metadata) -> Any:
    """The folder's tokenizer, with the file's chat template where the folder has none. Raises CheckpointError, and
    UnsupportedModelError where it has more tokens than the file."""
    tokenizer = made.load()
    vocabulary_tok = num_rows(metadata.file)
    if vocabulary_tok is not None and len(tokenizer) > vocabulary_tok:
        raise given.disagreement(f"its tokenizer has {len(tokenizer)} tokens, and the file {vocabulary_tok}")
    if isinstance(tokenizer, FastTokenizer) and not tokenizer.chat_template:
        tokenizer.chat_template = read_templates(metadata)
    return tokenizer
