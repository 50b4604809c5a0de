"""What a GGUF file says about drawing tokens (`general.sampling.*`), as a generation config would."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from engine.checkpoint.gguf.metadata import Metadata
from engine.sampling.defaults import ModelDefaults, defaults_of

_PREFIX: Final = "general.sampling."
_NAMES: Final = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
"""Name in the file -> name in a generation config. Other keys are of samplers that do not exist here."""


def gguf_defaults(metadata: Metadata, end_tokens: Set[int]) -> ModelDefaults:
    """The model's own settings; a file that names a temperature above 0 samples. Raises CheckpointError."""
    values: dict[str, object] = {
        name: metadata.number(f"{_PREFIX}{key}") for key, name in _NAMES.items() if metadata.has(f"{_PREFIX}{key}")
    }
    values["do_sample"] = values.get("temperature", 0.0) != 0.0
    values["eos_token_id"] = sorted(end_tokens)
    return defaults_of(values, str(metadata.file.paths[0]))
