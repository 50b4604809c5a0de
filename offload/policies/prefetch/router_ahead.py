"""The next layer's own router, run one layer early."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offload.policies.forecast import ROUTERS
from offload.policies.prefetch import Forecast, Outlook


class RouterAheadPrefetcher:
    """Fetches the best-ranked absent experts of the prediction, at most `depth` of them.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism" (the router of layer l+1 on the hidden state of
    layer l), with a fixed depth in place of the overlap window's.
    """

    needs_window = False
    waits_for_first_expert = False
    source = ROUTERS

    def __init__(self, depth: int, num_layers_ahead: int = 1) -> None:
        """Raises ValueError for a negative depth."""
        if depth < 0:
            raise ValueError(f"prefetch depth is {depth}")
        self.depth = depth
        self.num_layers_ahead = num_layers_ahead if depth else 0

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        return best_absent(outlook.forecasts, self.depth)

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""


def best_absent(forecasts: Iterable[Forecast], depth: int) -> list[tuple[int, int]]:
    """The first `depth` absent experts of the forecasts, nearest layer first; (layer, expert) each."""
    planned: list[tuple[int, int]] = []
    if depth:
        for layer, predicted, is_absent in forecasts:
            planned += [(layer, expert) for expert in predicted if is_absent(expert)]
            if len(planned) >= depth:
                break
    return planned[:depth]
