"""The routers of the next few layers, run early: for links on which one copy takes longer than a layer."""

from __future__ import annotations

from collections.abc import Sequence

from offload.policies.forecast import ROUTERS
from offload.policies.prefetch import Outlook
from offload.policies.prefetch.expected_gain import GainModel
from offload.policies.prefetch.rank_hit_rates import RankHitRates


class LayersAheadGainPrefetcher:
    """Fetches absent experts of layers l+1, l+2, ..., nearest first, while a further copy pays by `GainModel`.

    How likely each is used is learned by distance and place in the prediction (`RankHitRates`). A layer's ranking is
    followed until a copy does not pay; then the next layer's is looked at, which has more time and is less certain.
    """

    needs_window = True
    waits_for_first_expert = False
    source = ROUTERS

    def __init__(self, depth: int, model: GainModel | None = None, num_layers_ahead: int = 2) -> None:
        """`depth`: for the next layer, used until a window is measured. Raises ValueError for a negative one."""
        if depth < 0 or num_layers_ahead < 1:
            raise ValueError(f"prefetch depth is {depth}, {num_layers_ahead} layers ahead")
        self.depth = depth
        self.num_layers_ahead = num_layers_ahead
        self.hit_rates = RankHitRates(num_layers_ahead)
        self._model = model or GainModel()

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        planned: list[tuple[int, int]] = []
        window = outlook.window
        start_s = 0.0 if window is None else window.demand_queued_s + window.prefetch_queued_s
        distances = range(1, self.num_layers_ahead + 1)
        for distance, (layer, predicted, is_absent) in zip(distances, outlook.forecasts, strict=False):
            absent = [(rank, expert) for rank, expert in enumerate(predicted) if is_absent(expert)]
            self.hit_rates.expect(layer, distance, absent)
            if window is None:
                planned += [(layer, expert) for _, expert in absent[: self.depth]] if distance == 1 else []
            elif distance <= len(window.copy_s):
                copy_s, known_s = window.copy_s[distance - 1], window.routing_known_s[:distance]
                for rank, expert in absent:
                    probability = self.hit_rates.rate(distance, rank)
                    if self._model.net_gain_s(probability, start_s, copy_s, known_s) <= 0:
                        break
                    planned.append((layer, expert))
                    start_s += copy_s
        return planned

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
        self.hit_rates.observe(layer, experts)
