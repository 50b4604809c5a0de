"""One step's experts of the next layer."""

from __future__ import annotations

from collections.abc import Sequence

from offload.geometry import Geometry
from offload.policies.forecast import SELECTIONS
from offload.policies.prefetch import Outlook
from offload.policies.prefetch.router_ahead import best_absent


class NextStepPrefetcher:
    """Fetches what is predicted for the next layer, as many as its k, from the moment the first resident expert of this
    layer is computed.

    After "DuoServe-MoE: Dual-Phase Expert Prefetch", section "Mechanism". What the gate does not pick is dropped by the
    eviction policy, and a copy that has not started is taken back; a wrong one is fetched at demand priority.
    """

    num_layers_ahead = 1
    needs_window = False
    waits_for_first_expert = True
    source = SELECTIONS

    def __init__(self, geometry: Geometry) -> None:
        self._top_k = [layer.top_k for layer in geometry.layers]
        self.depth = max(self._top_k, default=0)

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        return best_absent(outlook.forecasts, self.depth)

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher: the source of the forecasts observes."""
