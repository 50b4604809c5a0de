"""Runs a recorded task on a virtual clock, without the machine's noise: the real cache, policies and prefetching over
recorded routing and predictions, with given numbers for a layer's compute and the link's bandwidth.

Not modelled: how copies and compute slow each other down, and the overhead of the policies themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.commands.bench.workload import Task
from engine.lookahead.prefetching import Prefetching
from offload.policies.eviction import make_eviction
from offload.policies.forecast import forecaster_of
from offload.policies.inputs import PolicyInputs
from offload.policies.prefetch import make_prefetcher
from offload.policies.routing_observer import RoutingFeed
from offload.replay.trace_run import TraceRun
from offload.replay.virtual_link import VirtualClock, VirtualLink
from offload.slot_groups import SlotGroups


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a decode step in which no expert is missing."""

    layer_s: float
    """From the end of one MoE layer to the end of the next."""
    expert_s: float
    """The part of `layer_s` that one expert's compute takes."""
    token_s: float
    """The whole step."""


class RecordedLookahead:
    """A Forecaster that repeats the predictions recorded with the task."""

    def __init__(self, task: Task) -> None:
        self._forecasts = task.forecasts
        self.step = 0

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return any(ahead in layers[layer] for layers in self._forecasts[:1])

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster."""
        return self._forecasts[self.step][layer].get(ahead, [])

    def learn(self, layer: int) -> None:
        """See Forecaster; does nothing, since predictions are recorded."""


class VirtualRun(TraceRun):
    """One set of policies on one task."""

    def __init__(
        self,
        task: Task,
        policies: tuple[str, str, int],
        slots: Sequence[int] | SlotGroups,
        initial: Sequence[Sequence[int]],
        bytes_per_s: float,
        times: StepTimes,
        inputs: PolicyInputs | None = None,
    ) -> None:
        """`policies`: eviction, prefetcher and prefetch depth. `initial[l]`: the experts of layer l resident when
        decode begins. `inputs`: of the policies; None: their defaults."""
        eviction, prefetch, depth = policies
        geometry = task.trace.geometry
        self._times, self._clock = times, VirtualClock()
        self._link = VirtualLink(self._clock, bytes_per_s, geometry)
        inputs = inputs or PolicyInputs(geometry)
        inputs.depth = depth
        groups = slots if isinstance(slots, SlotGroups) else SlotGroups.per_layer(slots)
        super().__init__(task.trace, make_eviction(eviction, inputs), groups, self._link, initial)
        self._lookahead = RecordedLookahead(task)
        prefetcher = make_prefetcher(prefetch, inputs)
        forecaster = forecaster_of(prefetcher.source, self._lookahead, inputs)
        self._prefetching = Prefetching(
            self.cache, self._link, forecaster, prefetcher, geometry, always_predict=False, clock=self._clock
        )
        self._prefetching.set_expert_compute_s(times.expert_s)
        self._feed = RoutingFeed(inputs.observers)

    def tpot_s(self) -> float:
        """Mean seconds a token, over all decode steps of the task."""
        began_s = self._clock.now_s
        self.run()
        return (self._clock.now_s - began_s) / max(self.trace.num_steps, 1)

    def layer_step(self, step: int, layer: int, experts: list[int]) -> None:
        """See TraceRun."""
        self._lookahead.step = step
        self._compute(self._times.layer_s - len(experts) * self._times.expert_s)
        self._feed.decoded(layer, experts)
        leases = self.cache.acquire(layer, experts, lambda: self.scores(step, layer))
        asks_late = self._prefetching.waits_for_first_expert
        if not asks_late:
            self._prefetching.look_ahead(layer, experts, leases)
        waited_s = 0.0
        for lease in sorted(leases, key=lambda lease: lease.copy is not None):
            if lease.copy is not None:
                waited_s += lease.copy.wait()
            self._compute(self._times.expert_s)
            if asks_late:
                self._prefetching.look_ahead(layer, experts, leases)
                asks_late = False
        self._prefetching.layer_ended(layer, waited_s)
        self.cache.release(layer)

    def token_ended(self) -> None:
        """See TraceRun: what is computed behind the last layer."""
        self._compute(self._times.token_s - self.trace.geometry.num_layers * self._times.layer_s)

    def _compute(self, seconds: float) -> None:
        """Advances the clock; copies due meanwhile land at their own times."""
        self._link.pass_time(max(seconds, 0.0))
