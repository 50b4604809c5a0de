"""The next layer's own router, and as many copies as are expected to save more than they cost."""

from __future__ import annotations

from offload.policies.prefetch.expected_gain import GainModel
from offload.policies.prefetch.layers_ahead_gain import LayersAheadGainPrefetcher


class RouterAheadGainPrefetcher(LayersAheadGainPrefetcher):
    """Fetches absent experts of the next layer, in the order of the prediction, while a further copy pays."""

    def __init__(self, depth: int, model: GainModel | None = None) -> None:
        """`depth`: used until a window is measured. Raises ValueError for a negative one."""
        super().__init__(depth, model, num_layers_ahead=1)
