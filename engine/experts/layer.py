"""One MoE layer's experts, in prefill and in decode.

Decode (after "MoE-CORE: Coordinated Expert Offload", section "Mechanism"): the misses of this layer are queued on the
link, the next layer's router is asked and its absent experts are queued behind them, resident experts are computed
meanwhile, and arriving ones in groups as they land. Outputs are summed in top-k order, so that the order of arrival
changes no bit. Prefill is exact and evicts nothing; see `prefill`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.experts.formats import ExpertFormat
from engine.experts.prefill import ExpertPrefill, Fetched
from engine.experts.routing_tap import RoutingTap
from engine.experts.step_state import StepState
from engine.lookahead.prefetching import Prefetching
from offload.geometry import LayerGeometry
from offload.link.expert_link import ExpertCopy
from offload.link.lease import Lease
from offload.link.slot_pool import SlotPool
from offload.policies.routing_observer import RoutingFeed
from offload.policies.substitution import Substitution
from offload.residency.cache import ExpertCache


@dataclass(slots=True)
class LayerContext:
    """What all MoE layers of one configuration share."""

    cache: ExpertCache
    pool: SlotPool
    prefill: ExpertPrefill
    prefetching: Prefetching
    substitution: Substitution
    state: StepState
    feed: RoutingFeed = field(default_factory=lambda: RoutingFeed(()))
    """Tells the policies that follow requests."""
    expert_compute_s: float = 0.0
    """Seconds that one resident expert's compute takes, measured at warm-up."""


class MoeLayer:
    """One MoE layer's experts: called by the model in place of the experts module's own forward."""

    def __init__(
        self,
        number: int,
        geometry: LayerGeometry,
        expert_format: ExpertFormat,
        tap: RoutingTap,
        context: LayerContext,
    ) -> None:
        self.number, self.geometry, self.tap = number, geometry, tap
        self._format, self._context, self._state = expert_format, context, context.state
        self._cache, self._prefetching = context.cache, context.prefetching
        pool = context.pool
        slots = context.cache.slots_of_layer(number)
        self._weights = expert_format.bind_slots(pool.memories(slots))
        self._first_slots = slots[: geometry.top_k]
        self.last_experts: list[int] = []
        self.last_substitutes: list[int] = []

    def __call__(self, hidden: Array, index: Array, weights: Array, *, only_last: bool = False) -> Array:
        """hidden [tokens, hidden], index and weights [tokens, k] -> [tokens, hidden], or with `only_last` that of the
        last token. Raises WaitCancelled, ExpertReadError."""
        if self._state.is_calibrating:
            bound = [self._weights[slot] for slot in self._first_slots[: index.shape[-1]]]
            self._format.compute(hidden, bound, list(range(len(bound))))
            return self._format.total(weights, hidden.dtype)
        if self._state.is_decode:
            out = self._decode(hidden, index, weights)
        else:
            out = self._prefill(hidden, index, weights, slice(-1 if only_last else 0, None))
        self._state.after_layer(self.number)
        return out

    def measure_expert_compute_s(self, hidden_dim: int) -> float:
        """Median seconds of one expert on one token, on the bytes that the first slot happens to hold."""
        bound = self._weights[self._first_slots[0]]
        return sorted(self._format.time_one(bound, hidden_dim) for _ in range(9))[4]

    # -- decode -------------------------------------------------------------------------------------------------------

    def _decode(self, hidden: Array, index: Array, weights: Array) -> Array:
        began_s, waited_before_s = perf_counter(), self._state.link_wait_s
        experts: list[int] = index[0].tolist()
        if max(experts) >= self.geometry.num_experts:
            experts, weights = self._without_sentinels(experts, weights)
        substitutes, mass = self._substitutes(experts, weights) if self._state.is_approx else ({}, 0.0)
        self._context.feed.decoded(self.number, experts)
        try:
            leases = self._cache.acquire(self.number, experts, self.tap.scores, substitutes, mass, self._wait)
            if not self._prefetching.waits_for_first_expert:
                self._prefetching.look_ahead(self.number, experts, leases)
            waited_s = self._state.link_wait_s
            ready_s = perf_counter()
            self._compute_all(hidden, experts, leases)
            out = self._format.total(weights, hidden.dtype)
            computed_s = perf_counter()
            self._prefetching.layer_ended(self.number, self._state.link_wait_s - waited_s)
        finally:
            self._cache.release(self.number)
        self._note(experts, list(substitutes.values()))
        self._state.overhead_s += (ready_s - began_s) - (waited_s - waited_before_s) + perf_counter() - computed_s
        return out

    def computed_resident(self, experts: list[int]) -> None:
        """The back end has computed a decode step with these experts, all of them resident, by itself: counts, observes
        and records it as a call does. Raises WaitCancelled."""
        began_s = perf_counter()
        self._context.feed.decoded(self.number, experts)
        try:
            self._prefetching.look_ahead(self.number, experts, self._cache.acquire(self.number, experts))
        finally:
            self._cache.release(self.number)
        self._note(experts, [])
        self._state.overhead_s += perf_counter() - began_s
        self._state.after_layer(self.number)

    def _note(self, experts: list[int], substitutes: list[int]) -> None:
        """Keeps and records a decode step's experts."""
        self.last_experts, self.last_substitutes = experts, substitutes
        recorder = self._state.recorder
        if recorder is not None:
            scores = self.tap.scores() if recorder.has_scores else None
            predicted = self._prefetching.predictions.get(self.number) if recorder.has_predictions else None
            recorder.record(self.number, experts, scores, predicted)

    def _without_sentinels(self, experts: list[int], weights: Array) -> tuple[list[int], Array]:
        kept = [i for i, expert in enumerate(experts) if expert < self.geometry.num_experts]
        return [experts[i] for i in kept], weights[:, kept]

    def _compute_all(self, hidden: Array, experts: Sequence[int], leases: Sequence[Lease]) -> None:
        """Computes the token's experts: those at hand in one group, arriving ones in groups of what has landed. Adds to
        the state's link wait."""
        copies, late = [lease.copy for lease in leases], list(range(len(leases)))
        looks_ahead = self._prefetching.waits_for_first_expert
        if leases and not (looks_ahead or any(copies)):
            self._compute_slots(hidden, [lease.slot for lease in leases], late)
            return
        while True:
            ready = [place for place in late if (copy := copies[place]) is None or copy.is_done]
            late = [place for place in late if place not in ready]
            self._compute(hidden, leases, ready)
            if looks_ahead and ready:
                self._prefetching.look_ahead(self.number, experts, leases)
                looks_ahead = False
            if not late:
                return
            pending = [copy for place in late if (copy := copies[place]) is not None]
            self._wait(next((copy for copy in pending if copy.is_started), pending[0]))

    def _compute(self, hidden: Array, leases: Sequence[Lease], places: Sequence[int]) -> None:
        """Computes the experts of these places, whose copies are done. Raises ExpertReadError for one that failed."""
        if not places:
            return
        for place in places:
            copy = leases[place].copy
            if copy is not None:
                self._wait(copy)
        self._compute_slots(hidden, [leases[place].slot for place in places], places)

    def _compute_slots(self, hidden: Array, slots: Sequence[int], places: Sequence[int]) -> None:
        """What is in `slots[i]` for `places[i]`: a slot that comes again is an expert that the router chose again."""
        if len(set(slots)) == len(slots):
            self._format.compute(hidden, [self._weights[slot] for slot in slots], places)
            return
        for slot in dict.fromkeys(slots):
            own = [place for place, each in zip(places, slots, strict=True) if each == slot]
            self._format.compute_repeated(hidden, self._weights[slot], own)

    def _wait(self, copy: ExpertCopy) -> None:
        self._state.link_wait_s += copy.wait(self._state.is_cancelled)

    def _substitutes(self, experts: list[int], weights: Array) -> tuple[dict[int, int], float]:
        """(missed expert -> its substitute, the routing weight that substitutes carry, as a share of the token's)."""
        self._cache.settle(self.number)
        distinct = list(dict.fromkeys(experts))
        num_resident = sum(map(self._is_resident, distinct))
        scores = self.tap.selection_scores()
        if scores is None or num_resident == len(distinct):
            return {}, 0.0
        due_s = num_resident * self._context.expert_compute_s
        chosen = self._context.substitution.choose(
            distinct, scores, lambda expert: self._is_late(expert, due_s), self._is_resident
        )
        share = weights.reshape(-1).tolist()
        whole = sum(share) or 1.0
        self._state.substituted += len(chosen)
        return chosen, sum(share[i] / whole for i, expert in enumerate(experts) if expert in chosen)

    def _is_resident(self, expert: int) -> bool:
        return self._cache.is_resident(self.number, expert)

    def _is_late(self, expert: int, due_s: float) -> bool:
        """Absent, or on its way and landing later than in `due_s` seconds even if promoted now. Not known: False."""
        if self._cache.is_absent(self.number, expert):
            return True
        eta_s = self._cache.eta_s(self.number, expert)
        return eta_s is not None and eta_s > due_s

    # -- prefill ------------------------------------------------------------------------------------------------------

    @property
    def takes_forecast(self) -> bool:
        """Whether `forecast` would be of use now."""
        return not self._state.is_calibrating and self._context.prefill.takes_forecast(self.number)

    def forecast(self, index: np.ndarray) -> None:
        """The experts that a prompt's tokens will probably be routed to, [tokens, k]; called before the layer before
        this one is. They may be loaded early."""
        experts, counts = np.unique(index, return_counts=True)
        self._context.prefill.forecast(self.number, experts[np.argsort(-counts, kind="stable")].tolist())

    def _prefill(self, hidden: Array, index: Array, weights: Array, wanted: slice) -> Array:
        """Of the `wanted` tokens; the routing of all is recorded."""
        recorder = self._state.recorder
        if recorder is not None:
            recorder.record(self.number, np.asarray(index), self.tap.all_scores() if recorder.has_scores else None)
        hidden, index, weights = hidden[wanted], index[wanted], weights[wanted]
        num_tok = len(index)
        order_of, rows_of = self._by_expert(index)
        self._context.feed.prefilled(self.number, order_of, [len(rows_of[expert]) for expert in order_of])
        total = self._format.sum_of(hidden, weights)
        resident = self._cache.lock_resident(self.number, order_of)
        absent = [expert for expert in order_of if expert not in resident]
        try:
            by_use = sorted(absent, key=lambda expert: -len(rows_of[expert]))
            arriving = self._context.prefill.fetch(self.number, absent, by_use, num_tok)
            for expert, bound in self._in_turn(order_of, resident, arriving, total.flush):
                total.add(bound, rows_of[expert])
        except BaseException:
            self._context.prefill.abandon()
            raise
        finally:
            self._cache.release(self.number)
        self.last_experts, self.last_substitutes = order_of, []
        return total.result()

    def _in_turn(
        self,
        order: Sequence[int],
        resident: Mapping[int, int],
        arriving: Generator[list[Fetched]],
        before_next: Callable[[], None],
    ) -> Iterator[tuple[int, Any]]:
        """(expert, its bound weights) of every expert of `order`: in this order, or the resident ones first where the
        order changes no bit of the sum. `before_next` is called before more are waited for, and what had arrived is
        lost."""
        if self._format.is_order_free:
            order = sorted(order, key=lambda expert: expert not in resident)
        arrived: deque[Fetched] = deque()
        for expert in order:
            if expert in resident:
                yield expert, self._weights[resident[expert]]
                continue
            if not arrived:
                before_next()
                arrived.extend(next(arriving))
            fetched = arrived.popleft()
            yield fetched.expert, self._bound(fetched)
        before_next()
        for _ in arriving:
            raise AssertionError("an expert that was not asked for")

    def _bound(self, fetched: Fetched) -> Any:
        if fetched.slot is not None:
            return self._weights[fetched.slot]
        assert fetched.staged is not None, "an expert is in a slot or staged"
        return self._format.bind(fetched.staged)

    def _by_expert(self, index: Array) -> tuple[list[int], dict[int, Array]]:
        """(experts, in the order of their numbers, as files have them; expert -> its rows in the flat [tokens * k]
        routing)."""
        rows = self._format.by_expert(index)
        return [expert for expert in rows if expert < self.geometry.num_experts], rows
