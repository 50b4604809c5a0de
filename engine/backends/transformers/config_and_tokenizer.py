"""Reads a model's configuration, tokenizer and generation defaults with the library. Files of weights: see `shards`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from engine.checkpoint.tokenizer_files import check_tokenizer_files, tokenizer_error
from engine.errors import CheckpointError, UnsupportedModelError
from engine.sampling.defaults import FILE_NAME, ModelDefaults, defaults_of, read_model_defaults


def library_config(folder: Path) -> Any:
    """The library's configuration of a checkpoint whose config.json `read_config_file` has checked. Raises
    UnsupportedModelError or CheckpointError."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever the library's parsers and validators raise
        text = str(error) or type(error).__name__
        if "model type" in text or "trust_remote_code" in text or "Unrecognized model" in text:
            raise UnsupportedModelError(
                f"{folder / 'config.json'} names an architecture that transformers does not know.",
                "It would need code from the model's folder, which is never run. docs/models.md lists what can be run.",
            ) from error
        raise CheckpointError(
            f"{folder / 'config.json'} cannot be read: {' '.join(text.split())[:300]}", "Fetch it again."
        ) from error
    quantization = getattr(config, "quantization_config", None)
    if quantization:
        method = (
            quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else quantization.quant_method
        )
        raise UnsupportedModelError(
            f"{folder} is stored in a low-bit format ({method}), which is not read yet.",
            "Use its bf16, fp16 or fp32 checkpoint, or a GGUF file. FP8 of families that ggml knows runs on ggml.",
        )
    return config


def load_tokenizer(folder: Path) -> Any:
    """The checkpoint's tokenizer. Raises CheckpointError."""
    check_tokenizer_files(folder)
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the library raises whatever its parsers raise
        raise tokenizer_error(folder, error) from error


def read_defaults(folder: Path, config: Any) -> ModelDefaults:
    """What the folder's generation_config.json says, or without one what `config` implies. Raises CheckpointError."""
    if os.path.lexists(folder / FILE_NAME):
        return read_model_defaults(folder)
    try:
        implied = GenerationConfig.from_model_config(config).to_dict()
    except Exception as error:  # whatever the library makes of values that make no sense
        raise CheckpointError(
            f"{folder / 'config.json'} has settings for generation that cannot be read: {str(error)[:200]}",
            "Fetch it again.",
        ) from error
    return defaults_of(implied, str(folder / "config.json"))
