"""The families that the ggml back end knows: one file each, over shared parts. Written from the models' definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.backends.ggml.families import glm4moe, qwen3moe
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec
from engine.errors import UnsupportedModelError

FAMILIES: Final[Mapping[str, Callable[[StoredModel], ModelSpec]]] = {
    "qwen3moe": qwen3moe.read_spec,
    "glm4moe": glm4moe.read_spec,
}
"""By the architecture's name in GGUF."""
_OF_MODEL_TYPE: Final = {"qwen3_moe": "qwen3moe", "glm4_moe": "glm4moe"}


def family_of_model_type(model_type: str) -> str | None:
    """The family of a config.json's model type; None: it is not known here."""
    return _OF_MODEL_TYPE.get(model_type)


def read_spec(model: StoredModel) -> ModelSpec:
    """The model's numbers and tensors. Raises UnsupportedModelError or CheckpointError, naming what does not fit, for
    every key and tensor that would change the result and is not used."""
    if model.family not in FAMILIES:
        raise UnsupportedModelError(
            f"{model.name} is of the family {model.family!r}, which the ggml back end does not know.",
            f"It knows {', '.join(FAMILIES)}. Safetensors checkpoints of other families run on transformers.",
        )
    spec = FAMILIES[model.family](model)
    model.require_all_used()
    return spec
