"""How a model's weights are stored, in words."""

from __future__ import annotations

from collections import Counter

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.library import load_library


def formats_in_words(stored: StoredModel) -> str:
    """`BF16`, or the formats of a mixed file with the largest share first: `Q4_K, Q6_K, F32`."""
    sizes: Counter[int] = Counter()
    for weight in stored.weights():
        sizes[weight.type_id] += weight.num_bytes
    return ", ".join(load_library().type_name(type_id).decode().upper() for type_id, _ in sizes.most_common(3))
