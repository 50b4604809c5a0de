"""A GGUF file as a StoredModel, with its tokenizer and what else the file says of the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.ggml.given_config import GivenConfig
from engine.backends.ggml.given_tokenizer import load_given_tokenizer
from engine.backends.ggml.number_formats import formats_in_words
from engine.backends.ggml.plain_values import to_float32
from engine.backends.ggml.stored_gguf import stored_model
from engine.backends.ggml.tensor_types import BF16, F16, F32
from engine.backends.ggml.tokenizer_of_folder import TokenizerOfFolder
from engine.backends.tokenizers.folder_tokenizer import template_of_folder
from engine.backends.tokenizers.gguf_tokenizer import GgufTokenizer, read_tokenizer
from engine.checkpoint.config_file import text_part
from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.gguf.header import GgufTensor, read_gguf
from engine.checkpoint.gguf.metadata import Metadata
from engine.checkpoint.gguf.summary import require_runnable
from engine.sampling.defaults import FILE_NAME, ModelDefaults, read_model_defaults
from engine.sampling.gguf_defaults import gguf_defaults

_VALUES_AT_ONCE = 1 << 22


class GgufFiles:
    """See ModelFiles. One file, or all parts of a split one."""

    def __init__(self, path: Path, given: GivenConfig | None = None) -> None:
        """Reads the header. What `given` holds is used in place of what the file carries. Raises CheckpointError,
        UnsupportedModelError, also where file and `given` disagree."""
        self.path, self._file, self._given = path, read_gguf(path), given
        require_runnable(self._file, given is not None and given.has_tokenizer)
        if given is not None:
            given.require_agreement(self._file)
        self.model_type = self._file.architecture
        self.stored = stored_model(self._file, {} if given is None else given.numbers())
        self.number_format = formats_in_words(self.stored)
        self._tokenizer: GgufTokenizer | None = None
        self._given_tokenizer: TokenizerOfFolder | None = None
        if given is not None and given.has_tokenizer:
            self._given_tokenizer = TokenizerOfFolder(given.folder)

    def load_tokenizer(self) -> Any:
        """See ModelFiles."""
        metadata = Metadata(self._file)
        if self._given is not None and self._given_tokenizer is not None:
            return load_given_tokenizer(self._given, self._given_tokenizer, metadata)
        self._tokenizer = read_tokenizer(metadata)
        tokenizer = self._tokenizer.tokenizer
        if self._given is not None and (template := template_of_folder(self._given.folder)):
            tokenizer.chat_template = template
        return tokenizer

    @property
    def end_token_sources(self) -> Sequence[Mapping[str, Any]]:
        """See LoadedModel; once the tokenizer is loaded."""
        own = () if self._tokenizer is None else ({"eos_token_id": sorted(self._tokenizer.end_tokens)},)
        return own if self._given is None else (*own, self._given.config, text_part(self._given.config))

    def read_defaults(self) -> ModelDefaults:
        """See ModelFiles."""
        if self._given is not None and os.path.lexists(self._given.folder / FILE_NAME):
            return read_model_defaults(self._given.folder)
        return gguf_defaults(Metadata(self._file), frozenset())  # what ends an answer: see end_token_sources

    def notices(self) -> list[str]:
        """See ModelFiles."""
        return []

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See LoadedModel. Of the plain formats: a block of a quantised one is checked where it is computed."""
        damaged = []
        tensors = [tensor for tensor in self._file.tensors.values() if tensor.type_id in (F32, F16, BF16)]
        for number, tensor in enumerate(tensors):
            on_tensor(number, len(tensors))
            if not _is_finite(tensor):
                damaged.append(tensor.name)
        return damaged


def _is_finite(tensor: GgufTensor) -> bool:
    for start in range(0, tensor.num_bytes, 4 * _VALUES_AT_ONCE):
        raw = np.empty(min(4 * _VALUES_AT_ONCE, tensor.num_bytes - start), dtype=np.uint8)
        read_file(str(tensor.path), tensor.file_offset + start, memoryview(raw))  # type: ignore[arg-type]  # see Memory
        if not np.isfinite(to_float32(raw, tensor.type_id)).all():
            return False
    return True
