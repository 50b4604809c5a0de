"""How a model's weights are stored, as shares of its bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

_WHOLE: Final = 0.995
"""A share that is all but everything is not told."""
_WORTH_NAMING: Final = 0.01
"""Of the bytes: norms and routers in float32 are not what a model is known by."""


def shares_of(tensors: Iterable[tuple[str, int]]) -> tuple[tuple[str, float], ...]:
    """Of every tensor's (format, bytes): (format, its share of the bytes), the largest first; without those of less
    than a hundredth."""
    sizes: Counter[str] = Counter()
    for name, num_bytes in tensors:
        sizes[name] += num_bytes
    total = sizes.total() or 1
    return tuple((name, size / total) for name, size in sizes.most_common() if size >= _WORTH_NAMING * total)


def shares_in_words(shares: Iterable[tuple[str, float]]) -> str:
    """`Q4_K 72%, Q6_K 27%`, or the only format."""
    return ", ".join(f"{name} {share:.0%}" if share < _WHOLE else name for name, share in shares)
