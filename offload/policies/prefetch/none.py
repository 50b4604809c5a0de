"""No prefetch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offload.policies.prefetch import Forecast
from offload.policies.prefetch.overlap_window import Window


class NoPrefetcher:
    """Fetches nothing ahead."""

    num_layers_ahead = 0
    needs_window = False

    def __init__(self, depth: int = 0) -> None:
        """`depth` is ignored; every prefetcher has it."""

    def plan(self, forecasts: Iterable[Forecast], window: Window | None = None) -> list[tuple[int, int]]:
        """See Prefetcher."""
        return []

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
