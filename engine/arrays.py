"""What the back ends compute with: torch tensors on transformers, numpy arrays on ggml. Light: imports neither.

Code that serves both uses only what both have: indexing, arithmetic, `shape`, `tolist`, `max`, `argmax`.
"""

from __future__ import annotations

from typing import Any

Array = Any
"""A `torch.Tensor` or a `numpy.ndarray`, by the back end."""


def copied(array: Array) -> Array:
    """A copy in memory of its own."""
    return array.clone() if hasattr(array, "clone") else array.copy()
