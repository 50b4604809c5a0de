"""Prefetching in decode: predicts the next layers' experts, measures the overlap window, submits what is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from time import perf_counter

from offload.geometry import Geometry
from offload.link.expert_link import ExpertLink
from offload.link.lease import Lease
from offload.policies.forecast import Forecaster
from offload.policies.prefetch import Forecast, Outlook, Prefetcher
from offload.policies.prefetch.overlap_window import OverlapWindow, Window
from offload.residency.cache import ExpertCache

_LAUNCH_OVERHEAD_S = 50e-6
"""From submitting a copy to the link's thread starting it; measured with an idle link on two cores."""


class NoForecaster:
    """A Forecaster that predicts nothing: for a layer that has no others ahead."""

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return False

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster."""
        return []

    def learn(self, layer: int) -> None:
        """See Forecaster."""


class Prefetching:
    """One for all layers; called in their order by the engine's thread, in decode only."""

    def __init__(
        self,
        cache: ExpertCache,
        link: ExpertLink,
        lookahead: Forecaster,
        prefetcher: Prefetcher,
        geometry: Geometry,
        always_predict: bool,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`always_predict`: also where no expert of the layer ahead can be absent, for benches."""
        self.forecaster = lookahead
        self._cache, self._link, self._lookahead, self._prefetcher = cache, link, lookahead, prefetcher
        self._clock = clock
        self._window = OverlapWindow(geometry, _LAUNCH_OVERHEAD_S)
        self._expert_bytes = [layer.expert_bytes for layer in geometry.layers]
        self._num_ahead = prefetcher.num_layers_ahead
        can_be_absent = [some or always_predict for some in cache.slot_groups.can_be_absent(geometry)]
        self._targets = [
            [
                ahead
                for ahead in (
                    (layer + distance) % geometry.num_layers
                    for distance in range(1, min(self._num_ahead, geometry.num_layers - 1) + 1)
                )
                if can_be_absent[ahead] and lookahead.can_predict(layer, ahead)
            ]
            for layer in range(geometry.num_layers)
        ]
        self._predicts = any(self._targets)
        self._is_absent = [partial(cache.is_absent, layer) for layer in range(geometry.num_layers)]
        self.predictions: dict[int, list[int]] = {}
        """Per layer, what was last predicted for it at the layer before."""
        self._expected: dict[int, list[int]] = {}
        """Per layer, what was last predicted for it at any layer."""
        self._last_depth = 0
        self._opened_s = self._ended_s = 0.0
        self._last_layer = -1

    @property
    def targets(self) -> list[list[int]]:
        """Per layer, the layers predicted at it, the nearest first; one of a lower number is the next token's."""
        return self._targets

    @property
    def is_adaptive(self) -> bool:
        """Whether the overlap window, not a fixed number, decides how many experts are fetched."""
        return self._prefetcher.needs_window

    def set_expert_compute_s(self, seconds: float) -> None:
        """Set the compute that is left to a layer when its last demand copy has landed: one expert's."""
        self._window.expert_compute_s = seconds

    @property
    def depth(self) -> int:
        """Experts prefetched per step of a layer: the fixed number, or what an adaptive prefetcher last planned."""
        if self._prefetcher.needs_window:
            return self._last_depth
        return int(getattr(self._prefetcher, "depth", self._last_depth))

    @property
    def source(self) -> str:
        """Where its forecasts come from: `offload.policies.forecast`."""
        return self._prefetcher.source

    @property
    def waits_for_first_expert(self) -> bool:
        """Whether `look_ahead` is to be called once the layer's first experts are computed."""
        return self._prefetcher.waits_for_first_expert

    def look_ahead(self, layer: int, experts: Sequence[int], leases: Sequence[Lease]) -> None:
        """Predict, plan and submit; call when the layer's routing is known and its misses are queued."""
        self._prefetcher.observe(layer, experts)
        targets = self._targets[layer]
        if self._predicts:
            self._lookahead.learn(layer)
        if self._prefetcher.needs_window:
            self._open(layer)
        if self._num_ahead and not targets:
            return
        self.predictions.pop(layer + 1, None)
        window = self._window_at(layer, leases) if self._prefetcher.needs_window else None
        asked: list[int] = []
        forecasts = self._forecasts(layer, targets, asked)
        outlook = Outlook(forecasts, window, layer, self._cache.is_absent, self._cache.num_prefetching)
        wanted = self._prefetcher.plan(outlook)
        self._last_depth = len(wanted)
        for ahead, chosen in groupby(wanted, key=itemgetter(0)):
            self._cache.prefetch(ahead, [expert for _, expert in chosen], self._expected.get(ahead, ()))
        for ahead in {*asked} - {ahead for ahead, _ in wanted}:
            if self._cache.num_loading(ahead):  # what was wrongly predicted before is given up
                self._cache.prefetch(ahead, (), self._expected[ahead])

    def _forecasts(self, layer: int, targets: Sequence[int], asked: list[int]) -> Iterator[Forecast]:
        """The forecasts of the layers ahead, each predicted and added to `asked` when the prefetcher asks for it."""
        for ahead in targets:
            asked.append(ahead)
            predicted = self._expected[ahead] = list(dict.fromkeys(self._lookahead.predict(layer, ahead)))
            if ahead == layer + 1:
                self.predictions[ahead] = predicted
            yield Forecast(ahead, predicted, self._is_absent[ahead])

    def layer_ended(self, layer: int, waited_s: float) -> None:
        """Measure the layer, whose experts are computed; `waited_s` of the time since `look_ahead` went to the link."""
        if not self._prefetcher.needs_window:
            return
        now = self._clock()
        self._window.observe_compute(layer, now - self._opened_s - waited_s)
        self._ended_s, self._last_layer = now, layer

    def _open(self, layer: int) -> None:
        now = self._clock()
        if layer == self._last_layer + 1:
            self._window.observe_attention(layer, now - self._ended_s)
        if layer == 0:
            self._window.observe_bandwidth(self._link.bytes_per_s)
        self._opened_s = now

    def _window_at(self, layer: int, leases: Sequence[Lease]) -> Window | None:
        demand = len({lease.slot for lease in leases if lease.copy is not None}) * self._expert_bytes[layer]
        ahead = self._targets[layer]
        queued = sum(self._cache.num_loading(at) * self._expert_bytes[at] for at in ahead)
        return self._window.window(layer, demand_bytes=demand, prefetch_bytes=queued, num_layers_ahead=self._num_ahead)
