"""The models on this machine with what each would cost and give at the user's budget: for menus.

Light: a header is read and looked at as loading it would; neither torch nor a library is needed, and no weight is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from engine.backends.ggml.estimate import costs_of
from engine.backends.ggml.families import read_spec
from engine.backends.ggml.stored_gguf import stored_model
from engine.backends.tokenizers.known_tokenizers import require_known_tokenizer
from engine.checkpoint.catalogue import ModelEntry, describe_folder, find_models
from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.gguf.metadata import Metadata
from engine.checkpoint.model_entry import Examined
from engine.config import GGML, EngineConfig


def list_models(folders: Sequence[Path], config: EngineConfig) -> tuple[ModelEntry, ...]:
    """See `find_models`; GGUF models with their costs at the budget of `config`."""
    return find_models(folders, partial(examine, config=config))


def describe_model(path: Path, config: EngineConfig) -> ModelEntry:
    """See `describe_folder`; a GGUF model with its costs."""
    return describe_folder(path, partial(examine, config=config))


def examine(file: GgufFile, config: EngineConfig) -> Examined:
    """What the family says of a model, and its costs. Raises UnsupportedModelError and CheckpointError as a load does
    before its first weight."""
    require_known_tokenizer(Metadata(file))
    spec = read_spec(stored_model(file))
    return Examined(backend=GGML, costs=costs_of(spec, config))
