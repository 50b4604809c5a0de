"""The next layer's own router, and as many copies as the overlap window hides altogether."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offload.policies.prefetch import Forecast
from offload.policies.prefetch.overlap_window import Window
from offload.policies.prefetch.router_ahead import best_absent


class RouterAheadFloorPrefetcher:
    """Fetches the best-ranked absent experts of the prediction, `Window.depth_floor` of them.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism".
    """

    num_layers_ahead = 1
    needs_window = True

    def __init__(self, depth: int) -> None:
        """`depth`: used until a window is measured. Raises ValueError for a negative one."""
        if depth < 0:
            raise ValueError(f"prefetch depth is {depth}")
        self.depth = depth

    def plan(self, forecasts: Iterable[Forecast], window: Window | None = None) -> list[tuple[int, int]]:
        """See Prefetcher."""
        return best_absent(forecasts, self.depth if window is None else window.depth_floor())

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
