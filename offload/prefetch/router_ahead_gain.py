"""The next layer's own router, and as many copies as are expected to save more than they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload.prefetch.expected_gain import GainModel
from offload.prefetch.layers_ahead_gain import LayersAheadGainPrefetcher
from offload.prefetch.overlap_window import Window


class RouterAheadGainPrefetcher:
    """Fetches absent experts in the order of the prediction while a further copy pays, by `GainModel`.

    How likely each is used is learned by its place in the prediction (`RankHitRates`).
    """

    needs_prediction = True
    needs_window = True

    def __init__(self, depth: int, model: GainModel | None = None) -> None:
        """`depth`: used until a window is measured. Raises ValueError for a negative one."""
        self._ahead = LayersAheadGainPrefetcher(depth, model, num_layers_ahead=1)

    def plan(
        self, predicted: Sequence[int], is_absent: Callable[[int], bool], window: Window | None = None, layer: int = 0
    ) -> list[int]:
        """See Prefetcher."""
        return self._ahead.plan(predicted, is_absent, window, layer)

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
        self._ahead.observe(layer, experts)
