"""Replays recorded routing through a policy, and counts what the expert cache counts.

A layer's top-k enter together (event-atomic): the step's experts are locked, none of them is evicted for another, and
all are loaded (no bypass). A demand copy has landed when the step ends. Decode steps only, since prefill evicts
nothing from the decode slots.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from offload.counters import Counters
from offload.policies.eviction import EvictionPolicy
from offload.replay.trace import RoutingTrace
from offload.replay.trace_run import TraceRun
from offload.replay.virtual_link import StillLink
from offload.slot_groups import SlotGroups


@dataclass(frozen=True, slots=True)
class PrefetchModel:
    """A fixed prefetch depth, and a coarse model of the link: the number of copies that a layer's compute hides."""

    depth: int
    """Copies queued for the next layer at most, taken from the recorded prediction."""
    hidden_copies: int
    """Copies that land before the next layer's routing is known, this layer's demand copies first."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Counters per layer, as the engine's; `demand_loads` and `prefetch_loads` are the copies that moved."""

    layers: tuple[Counters, ...]

    @property
    def total(self) -> Counters:
        """Over all layers."""
        return Counters.total(self.layers)

    @property
    def loads(self) -> int:
        """Copies host -> device over all layers."""
        return self.total.loads


def replay(
    trace: RoutingTrace,
    eviction: EvictionPolicy,
    slots: Sequence[int],
    *,
    initial: Sequence[Collection[int]] | None = None,
    group_of_layer: Sequence[int] | None = None,
    prefetch: PrefetchModel | None = None,
) -> ReplayResult:
    """Send the decode steps of a trace through a policy, whose history is mutated.

    `slots[g]`: slots of each group, by default one group per layer. `initial[l]`: experts of layer l resident at the
    start. Raises ValueError when a group cannot hold a step, or the initial experts do not fit.
    """
    trace = trace.decode_only()
    groups = tuple(range(trace.geometry.num_layers)) if group_of_layer is None else tuple(group_of_layer)
    _require_room(trace, slots, groups, initial)
    run = _Replay(trace, eviction, SlotGroups(tuple(slots), groups), initial or (), prefetch)
    before = [run.cache.counters(layer) for layer in range(len(groups))]
    run.run()
    return ReplayResult(tuple(run.cache.counters(layer) - before[layer] for layer in range(len(groups))))


def _require_room(
    trace: RoutingTrace,
    slots: Sequence[int],
    groups: Sequence[int],
    initial: Sequence[Collection[int]] | None,
) -> None:
    if len(groups) != trace.geometry.num_layers or (initial is not None and len(initial) != len(groups)):
        raise ValueError(f"the trace has {trace.geometry.num_layers} layers: {len(groups)} groups, {initial=}")
    for group, num_slots in enumerate(slots):
        layers = [layer for layer, of in enumerate(groups) if of == group]
        widest = max((trace.geometry.layers[layer].top_k for layer in layers), default=0)
        held = sum(len(initial[layer]) for layer in layers) if initial is not None else 0
        if num_slots < max(widest, held):
            raise ValueError(f"group {group} has {num_slots} slots, for steps of {widest} and {held} initial experts")


class _Replay(TraceRun):
    """A step's demand copies have landed when it ends; prefetches land as far as the model of the link hides them."""

    def __init__(
        self,
        trace: RoutingTrace,
        eviction: EvictionPolicy,
        groups: SlotGroups,
        initial: Sequence[Collection[int]],
        prefetch: PrefetchModel | None,
    ) -> None:
        self._link, self._model = StillLink(trace.geometry), prefetch
        super().__init__(trace, eviction, groups, self._link, initial)
        layers = range(trace.geometry.num_layers)
        self._predicted = [self.trace.predicted_by_step(layer) for layer in layers] if prefetch is not None else []

    def layer_step(self, step: int, layer: int, experts: list[int]) -> None:
        """See TraceRun."""
        cache, model, ahead = self.cache, self._model, layer + 1
        num_before = cache.counters(layer).misses if model is not None else 0
        leases = cache.acquire(layer, experts, lambda: self.scores(step, layer))
        if model is not None and ahead < len(self._predicted):
            absent = [expert for expert in self._predicted[ahead][step] if cache.is_absent(ahead, expert)]
            cache.prefetch(ahead, absent[: model.depth])
        for lease in leases:
            if lease.copy is not None:
                lease.copy.wait()
        if model is not None:
            self._link.land(model.hidden_copies - (cache.counters(layer).misses - num_before))
        cache.release(layer)
