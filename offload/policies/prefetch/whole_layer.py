"""The whole next layer."""

from __future__ import annotations

from collections.abc import Sequence

from offload.policies.forecast import WHOLE_LAYER
from offload.policies.prefetch import Outlook
from offload.policies.prefetch.router_ahead import best_absent


class WholeLayerPrefetcher:
    """Fetches every absent expert of the next layer while this one computes: no prediction.

    The layer-wise full prefetch that "DuoServe-MoE" compares itself with (MoESys), on this cache: copies that have not
    started when the layer's routing becomes known are taken back unless they were chosen.
    """

    num_layers_ahead = 1
    needs_window = False
    waits_for_first_expert = False
    source = WHOLE_LAYER

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        return best_absent(outlook.forecasts, 1 << 30)

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
