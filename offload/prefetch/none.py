"""No prefetch."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class NoPrefetcher:
    """Fetches nothing ahead."""

    needs_prediction = False

    def __init__(self, depth: int = 0) -> None:
        """`depth` is taken for the sake of the registry, and ignored."""

    def plan(self, predicted: Sequence[int], is_absent: Callable[[int], bool]) -> list[int]:
        """See Prefetcher."""
        return []
