"""A safetensors checkpoint, with what its folder holds beside the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.backends.ggml.number_formats import formats_in_words
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.backends.ggml.tokenizer_of_folder import TokenizerOfFolder
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.finite_values import tensors_not_finite
from engine.checkpoint.shards import choose_shards
from engine.sampling.defaults import ModelDefaults, read_model_defaults


class SafetensorsFiles:
    """A checkpoint folder, as the library reads it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.stored = folder, read_safetensors_model(folder)
        config = read_config_file(folder)
        self.model_type = str(config["model_type"])
        self.number_format = formats_in_words(self.stored)
        self.end_token_sources = [config]
        self._tokenizer = TokenizerOfFolder(folder)

    def load_tokenizer(self) -> Any:
        """See ModelFiles."""
        return self._tokenizer.load()

    def read_defaults(self) -> ModelDefaults:
        """See ModelFiles."""
        return read_model_defaults(self.path)

    def notices(self) -> list[str]:
        """See ModelFiles."""
        return list(choose_shards(self.path).notices)

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See ModelFiles."""
        return tensors_not_finite(self.path, on_tensor)
