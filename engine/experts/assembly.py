"""The machinery between host and device under one configuration: link, slots, cache, policies, and the MoE layers.

It can be torn down and built anew over the same loaded model: benches compare policies that way.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.transformers.loading import LoadedModel
from engine.config import EngineConfig
from engine.experts.layer import Machinery, MoeLayer
from engine.experts.prefill import ExpertPrefill, LayerPrefill, RingPrefill
from engine.experts.router_tap import RouterTap
from engine.experts.step_state import StepState
from engine.lookahead.lookahead import Lookahead
from engine.lookahead.prefetching import Prefetching
from engine.plan.budget import STAGING_SLOTS
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.link.staging import LayerStaging, StagingRing
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryWeights
from offload.policies.prefetch import make_prefetcher
from offload.policies.substitution import make_substitution
from offload.residency.cache import ExpertCache


class ExpertPlant:
    """Allocates at construction, works from `connect` on, and ends with `close`."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        slots_per_layer: Sequence[int],
        has_layer_staging: bool,
        weights: HistoryWeights | None = None,
    ) -> None:
        """`weights`: of history eviction; None: its defaults. Device memory, all of it, is allocated and touched here.
        Raises RuntimeError when the system refuses it."""
        geometry = loaded.plan.geometry
        expert_bytes = [layer.expert_bytes for layer in geometry.layers]
        self._config, self._loaded, self._has_layer_staging = config, loaded, has_layer_staging
        self.layers: list[MoeLayer] = []
        eviction = make_eviction(config.eviction, geometry, weights)
        self.pool = SlotPool(slots_per_layer, expert_bytes)
        self.link = Link(loaded.store, config.link_threads, config.link_bytes_per_s)
        self.cache = ExpertCache(geometry, self.pool, self.link, eviction)

    def connect(
        self, lookahead: Lookahead, taps: Sequence[RouterTap], state: StepState, always_predict: bool = False
    ) -> None:
        """Puts our MoE layers in place of the experts modules' own forward."""
        config, loaded, geometry = self._config, self._loaded, self._loaded.plan.geometry
        prefetcher = make_prefetcher(config.prefetch, config.prefetch_depth)
        self.prefetching = Prefetching(self.cache, self.link, lookahead, prefetcher, geometry, always_predict)
        self.prefill = self._make_prefill(state)
        state.abandon_prefill = self.prefill.abandon
        machinery = self._machinery = Machinery(
            cache=self.cache,
            pool=self.pool,
            prefill=self.prefill,
            prefetching=self.prefetching,
            substitution=make_substitution("boundary", config.alpha),
            state=state,
        )
        for number, shape in enumerate(geometry.layers):
            layer = MoeLayer(number, shape, loaded.formats[number], taps[number], machinery)
            loaded.modules[number].module.offload_layer = layer  # type: ignore[assignment]
            self.layers.append(layer)
        self.measure_expert_compute()

    def measure_expert_compute(self) -> None:
        """Measures what one expert's compute takes; again after the number of threads has changed."""
        hidden_dim = int(self._loaded.model.config.get_text_config().hidden_size)
        self.expert_compute_s = self.layers[0].measure_expert_compute_s(hidden_dim)
        self._machinery.expert_compute_s = self.expert_compute_s
        self.prefetching.set_expert_compute_s(self.expert_compute_s)

    def _make_prefill(self, state: StepState) -> ExpertPrefill:
        geometry = self._loaded.plan.geometry
        if self._has_layer_staging:
            return LayerPrefill(self.cache, LayerStaging(geometry, self.link), geometry, state.is_cancelled)
        ring = StagingRing(STAGING_SLOTS, geometry.largest_expert_bytes, self.link)
        return RingPrefill(self.cache, ring, geometry, state.is_cancelled)

    def close(self) -> None:
        """Stops the link. Safe to call twice."""
        self.link.close()
