"""dots.llm1: as GLM-4.5, with a norm on each query and key head and experts in one group.

Source: the definition in transformers (`Dots1ForCausalLM`).
"""

from __future__ import annotations

from typing import Final

from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.mixed_layers import read_mixed_layers, read_plan
from engine.backends.ggml.families.shared_parts import read_scored_router, read_sizes, spec_of
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import ModelSpec

CHECKPOINTS: Final = {"dots1": CheckpointWords(defaults={"norm_topk_prob": False})}


def read_spec(model: StoredModel) -> ModelSpec:
    """Raises CheckpointError and UnsupportedModelError."""
    sizes = read_sizes(model)
    layers = read_mixed_layers(model, sizes, read_plan(model, sizes))
    return spec_of(model, sizes, read_scored_router(model), layers)
