"""How a model's weights are stored, in words."""

from __future__ import annotations

from collections import Counter
from functools import cache

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.library import load_library
from engine.backends.ggml.stored_weight import FLOAT8

_WORTH_NAMING = 0.01
"""Of the model's bytes: norms and routers in float32 are not what a file is known by."""
_FLOAT8 = "FP8 as BF16"


def formats_in_words(stored: StoredModel) -> str:
    """`BF16`, or the formats of a mixed file with the largest share first: `Q4_K, Q6_K, F32`."""
    sizes: Counter[str] = Counter()
    for weight in stored.weights():
        is_float8 = weight.made is not None and weight.made.kind == FLOAT8
        sizes[_FLOAT8 if is_float8 else _name_of(weight.type_id)] += weight.num_bytes
    least = _WORTH_NAMING * sizes.total()
    return ", ".join(name for name, num_bytes in sizes.most_common() if num_bytes >= least)


@cache
def _name_of(type_id: int) -> str:
    return str(load_library().type_name(type_id).decode().upper())
