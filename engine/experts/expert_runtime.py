"""The experts' runtime under one configuration: link, slots, expert cache, policies, prefill and the MoE layers.

It can be closed and built anew over the same loaded model: benches compare policies that way. It knows no back end: the
back end gives it a source of experts, their formats, and a way to bind a MoE layer into its model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.config import EngineConfig
from engine.experts.formats import ExpertFormat
from engine.experts.layer import LayerContext, MoeLayer
from engine.experts.prefill import ExpertPrefill, LayerPrefill
from engine.experts.ring_prefill import RingPrefill
from engine.experts.routing_tap import RoutingTap
from engine.experts.step_state import StepState
from engine.lookahead.prefetching import Prefetching
from offload.geometry import Geometry
from offload.link.expert_source import ExpertSource
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.link.staging import LayerStaging, StagingRing
from offload.policies.eviction import make_eviction
from offload.policies.forecast import Forecaster, forecaster_of
from offload.policies.inputs import PolicyInputs
from offload.policies.prefetch import make_prefetcher
from offload.policies.routing_observer import RoutingFeed
from offload.policies.substitution import make_substitution
from offload.residency.cache import ExpertCache
from offload.slot_groups import SlotGroups


def depth_in_effect(config: EngineConfig, geometry: Geometry) -> int:
    """Experts prefetched per layer at most: as configured, or half of the k of a token. (Where a token has 8 experts
    and the disk is the limit, 4 took a quarter to a third off a token's time; of 2, a second one is mostly wrong.)"""
    if config.prefetch_depth is not None:
        return config.prefetch_depth
    return max(max(layer.top_k for layer in geometry.layers) // 2, 1)


class ExpertRuntime:
    """Allocates its memory at construction, serves a model from `connect` on, and ends with `close`."""

    def __init__(
        self,
        config: EngineConfig,
        geometry: Geometry,
        source: ExpertSource,
        groups: SlotGroups,
        has_layer_staging: bool,
        staging_slots: int,
        inputs: PolicyInputs | None = None,
    ) -> None:
        """Allocates and touches the slots, and starts the link's threads.

        `staging_slots`: of prefill's ring, where layers are not staged. `inputs`: of the policies; None: their
        defaults. Raises MemoryError when the system refuses the memory.
        """
        self._config, self._geometry, self._has_layer_staging = config, geometry, has_layer_staging
        self._staging_slots = staging_slots
        self.layers: list[MoeLayer] = []
        self._policies = config.policies
        self._inputs = inputs or PolicyInputs(geometry)
        self._inputs.depth = depth_in_effect(config, geometry)
        self.pool = SlotPool(groups.slots, groups.slot_bytes(geometry))
        self.link = Link(source, config.link_threads, config.link_bytes_per_s)
        eviction = make_eviction(self._policies.eviction, self._inputs)
        self.cache = ExpertCache(geometry, self.pool, self.link, eviction, groups.group_of_layer)

    def connect(
        self,
        formats: Sequence[ExpertFormat],
        hidden_dim: int,
        lookahead: Forecaster,
        taps: Sequence[RoutingTap],
        state: StepState,
        bind: Callable[[int, MoeLayer], None],
        always_predict: bool = False,
        when_connected: Callable[[ExpertCache, Prefetching], None] = lambda cache, prefetching: None,
    ) -> None:
        """Allocates the staging memory, builds the MoE layers and binds each: `bind(layer index, layer)`.

        One format and one tap per MoE layer. `always_predict`: also where no expert can be absent, for benches.
        `when_connected` is called when all are bound, before the first is used.
        """
        config, geometry = self._config, self._geometry
        prefetcher = make_prefetcher(self._policies.prefetch, self._inputs)
        forecaster = forecaster_of(prefetcher.source, lookahead, self._inputs)
        self.prefetching = Prefetching(self.cache, self.link, forecaster, prefetcher, geometry, always_predict)
        self.feed = RoutingFeed(self._inputs.observers)
        self.prefill = self._make_prefill(state)
        state.abandon_prefill, state.after_prefill = self.prefill.abandon, self.cache.drop_unwanted
        self._hidden_dim = hidden_dim
        context = self._context = LayerContext(
            cache=self.cache,
            pool=self.pool,
            prefill=self.prefill,
            prefetching=self.prefetching,
            substitution=make_substitution(self._policies.substitution, config.alpha),
            state=state,
            feed=self.feed,
        )
        for number, (shape, expert_format, tap) in enumerate(zip(geometry.layers, formats, taps, strict=True)):
            layer = MoeLayer(number, shape, expert_format, tap, context)
            bind(number, layer)
            self.layers.append(layer)
        when_connected(self.cache, self.prefetching)
        self.measure_expert_compute()

    def measure_expert_compute(self) -> None:
        """Measures what one expert's compute takes; again after the number of threads has changed."""
        self.expert_compute_s = self.layers[0].measure_expert_compute_s(self._hidden_dim)
        self._context.expert_compute_s = self.expert_compute_s
        self.prefetching.set_expert_compute_s(self.expert_compute_s)

    def _make_prefill(self, state: StepState) -> ExpertPrefill:
        if self._has_layer_staging:
            staging = LayerStaging(self._geometry, self.link)
            return LayerPrefill(self.cache, staging, self._geometry, state.is_cancelled)
        ring = StagingRing(self._staging_slots, self._geometry.largest_expert_bytes, self.link)
        return RingPrefill(self.cache, ring, self._geometry, state.is_cancelled)

    def close(self) -> None:
        """Stops the link. Safe to call twice."""
        self.link.close()
