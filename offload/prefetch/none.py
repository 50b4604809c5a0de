"""No prefetch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload.prefetch.overlap_window import Window


class NoPrefetcher:
    """Fetches nothing ahead."""

    needs_prediction = False
    needs_window = False

    def __init__(self, depth: int = 0) -> None:
        """`depth` is taken for the sake of the registry, and ignored."""

    def plan(
        self, predicted: Sequence[int], is_absent: Callable[[int], bool], window: Window | None = None, layer: int = 0
    ) -> list[int]:
        """See Prefetcher."""
        return []

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
