"""How a model's weights are stored, in words."""

from __future__ import annotations

from collections import Counter

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.library import load_library

_WORTH_NAMING = 0.01
"""Of the model's bytes: norms and routers in float32 are not what a file is known by."""


def formats_in_words(stored: StoredModel) -> str:
    """`BF16`, or the formats of a mixed file with the largest share first: `Q4_K, Q6_K, F32`."""
    sizes: Counter[int] = Counter()
    for weight in stored.weights():
        sizes[weight.type_id] += weight.num_bytes
    least = _WORTH_NAMING * sizes.total()
    named = [type_id for type_id, num_bytes in sizes.most_common() if num_bytes >= least]
    return ", ".join(load_library().type_name(type_id).decode().upper() for type_id in named)
