"""How a model's weights are stored, in words."""

from __future__ import annotations

from functools import cache

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.library import load_library
from engine.backends.ggml.stored_weight import FLOAT8, StoredWeight
from engine.checkpoint.format_shares import shares_of

_FLOAT8 = "FP8 as BF16"


def formats_in_words(stored: StoredModel) -> str:
    """`BF16`, or the formats of a mixed file with the largest share first: `Q4_K, Q6_K, F32`."""
    return ", ".join(
        name for name, _ in shares_of((_format_of(weight), weight.num_bytes) for weight in stored.weights())
    )


def _format_of(weight: StoredWeight) -> str:
    is_float8 = weight.made is not None and weight.made.kind == FLOAT8
    return _FLOAT8 if is_float8 else _name_of(weight.type_id)


@cache
def _name_of(type_id: int) -> str:
    return str(load_library().type_name(type_id).decode().upper())
