"""The families that the ggml back end knows: one file each, over shared parts. Written from the models' definitions.

A family's file has `read_spec`, and `CHECKPOINTS`: the words of the library's model types that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from engine.backends.ggml.families import (
    deepseek2,
    dots1,
    ernie4_5_moe,
    glm4moe,
    gptoss,
    granitemoe,
    hunyuan_moe,
    hy_v3,
    llama,
    minimax_m2,
    olmoe,
    qwen2moe,
    qwen3moe,
    qwen3next,
    qwen35moe,
)
from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec
from engine.errors import UnsupportedModelError


class _Family(Protocol):
    @property
    def CHECKPOINTS(self) -> Mapping[str, CheckpointWords]: ...  # noqa: N802 - a module's constant

    def read_spec(self, model: StoredModel) -> ModelSpec: ...


FAMILIES: Final[Mapping[str, _Family]] = {
    "qwen3moe": qwen3moe,
    "qwen2moe": qwen2moe,
    "glm4moe": glm4moe,
    "olmoe": olmoe,
    "llama": llama,
    "granitemoe": granitemoe,
    "gpt-oss": gptoss,
    "deepseek2": deepseek2,
    "dots1": dots1,
    "ernie4_5-moe": ernie4_5_moe,
    "hunyuan-moe": hunyuan_moe,
    "hy_v3": hy_v3,
    "minimax-m2": minimax_m2,
    "qwen3next": qwen3next,
    "qwen35moe": qwen35moe,
}
"""By the architecture's name in GGUF."""


def words_of_model_type(model_type: str) -> tuple[str, CheckpointWords] | None:
    """The family of a config.json's model type, and its words; None: it is not known here."""
    for name, family in FAMILIES.items():
        if model_type in family.CHECKPOINTS:
            return name, family.CHECKPOINTS[model_type]
    return None


def family_of_model_type(model_type: str) -> str | None:
    """The family of a config.json's model type; None: it is not known here."""
    found = words_of_model_type(model_type)
    return None if found is None else found[0]


def read_spec(model: StoredModel) -> ModelSpec:
    """The model's numbers and tensors. Raises UnsupportedModelError or CheckpointError, naming what does not fit, for
    every key and tensor that would change the result and is not used."""
    if model.family not in FAMILIES:
        raise UnsupportedModelError(
            f"{model.name} is of the family {model.family!r}, which the ggml back end does not know.",
            f"It knows {', '.join(FAMILIES)}. Safetensors checkpoints of other families run on transformers.",
        )
    spec = FAMILIES[model.family].read_spec(model)
    model.require_all_used()
    return spec
