"""Which back end runs a model: what was asked for, or the fastest that knows it, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.backends.backend import Backend
from engine.backends.ggml.availability import ggml_problem
from engine.backends.ggml.families import family_of_model_type
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.config_source import resolve_config
from engine.checkpoint.gguf.location import is_gguf
from engine.config import AUTO, GGML, KV_TYPES, TRANSFORMERS, EngineConfig
from engine.errors import ConfigError, UnsupportedModelError


def choose_backend(config: EngineConfig, model: Path) -> tuple[str, str]:
    """(name, why) for a folder or a GGUF file. Raises UnsupportedModelError where what was asked for cannot run it."""
    problem = ggml_problem()
    if is_gguf(model):
        if problem or config.backend == TRANSFORMERS:
            raise UnsupportedModelError(
                f"{model} is a GGUF file, which only the ggml back end reads"
                + (f", and it cannot be used here: {problem}." if problem else "."),
                "Mend that, or use the model's safetensors checkpoint." if problem else "Use --backend auto.",
            )
        return GGML, "GGUF"
    family = family_of_model_type(str(read_config_file(model)["model_type"]))
    if config.backend == GGML:
        if problem:
            raise UnsupportedModelError(f"The ggml back end cannot be used here: {problem}.", "Use --backend auto.")
        return GGML, "asked for"
    if config.backend == TRANSFORMERS:
        return TRANSFORMERS, "asked for"
    assert config.backend == AUTO, config.backend
    if family is None:
        return TRANSFORMERS, "ggml does not know this family"
    return (TRANSFORMERS, f"ggml cannot be used: {problem}") if problem else (GGML, f"fastest for {family} on the CPU")


def open_backend(config: EngineConfig, model: Path, is_cancelled: Callable[[], bool]) -> tuple[Backend, str]:
    """The back end, which has inspected the model, and why it was chosen. With `auto`, a model that ggml turns down
    for a reason of its own runs on transformers. Raises UnsupportedModelError, CheckpointError, ConfigError,
    WaitCancelled, and what `resolve_config` raises where a configuration was named."""
    name, why = choose_backend(config, model)
    config_folder = None
    if config.config_source is not None and is_gguf(model):
        config_folder = resolve_config(config.config_source, is_cancelled)
    if name == GGML:
        from engine.backends.ggml.backend import GgmlBackend

        try:
            return GgmlBackend(model, is_cancelled, config_folder, config.kv_type), why
        except UnsupportedModelError as error:
            if config.backend != AUTO or is_gguf(model):
                raise
            why = f"ggml does not run it: {error.message}"
    if config.kv_type != KV_TYPES[0]:
        raise ConfigError(
            f"A KV cache in {config.kv_type} is the ggml back end's, and the model runs on transformers: {why}.",
            f"Use --kv-type {KV_TYPES[0]}.",
        )
    from engine.backends.transformers.backend import TransformersBackend

    return TransformersBackend(model, is_cancelled, config.compute_threads), why
