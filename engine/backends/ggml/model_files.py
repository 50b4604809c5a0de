"""What the ggml back end reads of a model beside its weights: from a folder or a GGUF file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.index import tensors_not_finite
from engine.checkpoint.shards import choose_shards
from engine.sampling.defaults import ModelDefaults, read_model_defaults


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


def open_model_files(path: Path) -> ModelFiles:
    """Inspects a folder or a GGUF file. Raises UnsupportedModelError, CheckpointError."""
    if path.is_dir():
        return SafetensorsFiles(path)
    from engine.backends.ggml.gguf_model import GgufFiles

    return GgufFiles(path)


class SafetensorsFiles:
    """A checkpoint folder, as the library reads it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.stored = folder, read_safetensors_model(folder)
        config = read_config_file(folder)
        self.model_type = str(config["model_type"])
        self.number_format = formats_in_words(self.stored)
        self.end_token_sources = [config]

    def load_tokenizer(self) -> Any:
        """See ModelFiles."""
        from engine.backends.transformers.config_and_tokenizer import load_tokenizer

        return load_tokenizer(self.path)

    def read_defaults(self) -> ModelDefaults:
        """See ModelFiles."""
        return read_model_defaults(self.path)

    def notices(self) -> list[str]:
        """See ModelFiles."""
        return list(choose_shards(self.path).notices)

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See ModelFiles."""
        return tensors_not_finite(self.path, on_tensor)


def formats_in_words(stored: StoredModel) -> str:
    """`BF16`, or the formats of a mixed file with the largest share first: `Q4_K, Q6_K, F32`."""
    from engine.backends.ggml.library import load_library

    sizes: Counter[int] = Counter()
    for weight in stored.weights():
        sizes[weight.type_id] += weight.num_bytes
    return ", ".join(load_library().type_name(type_id).decode().upper() for type_id, _ in sizes.most_common(3))
