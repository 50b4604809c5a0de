"""What the ggml back end reads of a model beside its weights: from a folder or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.gguf_model import GgufFiles
from engine.backends.ggml.given_config import read_given_config
from engine.backends.ggml.safetensors_files import SafetensorsFiles
from engine.sampling.defaults import ModelDefaults


class ModelFiles(Protocol):
    """A model's files, inspected; no weight is read."""

    path: Path
    model_type: str
    number_format: str
    stored: StoredModel

    @property
    def end_token_sources(self) -> Sequence[Mapping[str, Any]]:
        """See LoadedModel."""
        ...

    def load_tokenizer(self) -> Any:
        """Raises CheckpointError, UnsupportedModelError."""
        ...

    def read_defaults(self) -> ModelDefaults:
        """Raises CheckpointError."""
        ...

    def notices(self) -> list[str]:
        """What the user should know about the files."""
        ...

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See LoadedModel."""
        ...


def open_model_files(path: Path, config_folder: Path | None = None) -> ModelFiles:
    """Inspects a folder or a GGUF file. `config_folder`: what to use beside a GGUF file. Raises UnsupportedModelError,
    CheckpointError."""
    if path.is_dir():
        return SafetensorsFiles(path)
    return GgufFiles(path, None if config_folder is None else read_given_config(config_folder))
