"""The models on this machine with what each would cost and give at the user's budget: for menus.

Light: a header is read and looked at as loading it would; neither torch nor a library is needed, and no weight is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from engine.backends.ggml.estimate import costs_of
from engine.backends.ggml.families import read_spec
from engine.backends.ggml.given_config import GivenConfig, read_given_config
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.backends.ggml.stored_gguf import stored_model
from engine.backends.tokenizers.known_tokenizers import require_known_tokenizer
from engine.checkpoint.catalogue import ModelEntry, describe_folder, find_models
from engine.checkpoint.config_source import local_config
from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.gguf.metadata import Metadata
from engine.checkpoint.gguf.summary import problem_of
from engine.checkpoint.model_entry import Examined, FolderHeaders
from engine.config import GGML, TRANSFORMERS, EngineConfig
from engine.errors import MoeChatError


def list_models(folders: Sequence[Path], config: EngineConfig) -> tuple[ModelEntry, ...]:
    """See `find_models`; models that ggml would run with their costs at the budget of `config`."""
    return find_models(folders, partial(examine, config=config))


def describe_model(path: Path, config: EngineConfig) -> ModelEntry:
    """See `describe_folder`; a model that ggml would run with its costs."""
    return describe_folder(path, partial(examine, config=config))


def examine(model: GgufFile | FolderHeaders, config: EngineConfig) -> Examined:
    """What the family says of a model, and its costs. Raises UnsupportedModelError and CheckpointError as a load does
    before its first weight; of a folder nothing, since what ggml does not run may run on transformers."""
    return _examine_folder(model, config) if isinstance(model, FolderHeaders) else _examine_file(model, config)


def _examine_folder(headers: FolderHeaders, config: EngineConfig) -> Examined:
    if config.backend != TRANSFORMERS:
        with suppress(MoeChatError):
            spec = read_spec(read_safetensors_model(headers.folder, headers.tensors))
            return Examined(backend=GGML, costs=costs_of(spec, config))
    return Examined()


def _examine_file(file: GgufFile, config: EngineConfig) -> Examined:
    given = _given(config)
    if given is not None:
        given.require_agreement(file)
    has_tokenizer = given is not None and given.has_tokenizer
    if not has_tokenizer:
        if problem := problem_of(file):
            return Examined(problem)
        require_known_tokenizer(Metadata(file))
    spec = read_spec(stored_model(file, {} if given is None else given.numbers()))
    return Examined(backend=GGML, costs=costs_of(spec, config), has_tokenizer=has_tokenizer)


def _given(config: EngineConfig) -> GivenConfig | None:
    """What `--config` names, where it is on this machine; a load tells what is wrong with it."""
    if config.config_source is None:
        return None
    with suppress(MoeChatError):
        folder = local_config(config.config_source)
        return None if folder is None else read_given_config(folder)
    return None
