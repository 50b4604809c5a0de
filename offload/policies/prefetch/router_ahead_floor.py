"""The next layer's own router, and as many copies as the overlap window hides altogether."""

from __future__ import annotations

from collections.abc import Sequence

from offload.policies.forecast import ROUTERS
from offload.policies.prefetch import Outlook
from offload.policies.prefetch.router_ahead import best_absent


class RouterAheadFloorPrefetcher:
    """Fetches the best-ranked absent experts of the prediction, `Window.depth_floor` of them.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism".
    """

    num_layers_ahead = 1
    needs_window = True
    waits_for_first_expert = False
    source = ROUTERS

    def __init__(self, depth: int) -> None:
        """`depth`: used until a window is measured. Raises ValueError for a negative one."""
        if depth < 0:
            raise ValueError(f"prefetch depth is {depth}")
        self.depth = depth

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        window = outlook.window
        return best_absent(outlook.forecasts, self.depth if window is None else window.depth_floor())

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
