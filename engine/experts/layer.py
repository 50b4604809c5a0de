"""One MoE layer's experts, in prefill and in decode.

Decode (after "MoE-CORE: Coordinated Expert Offload", section "Mechanism"): the misses of this layer go to the link, the
next layer's router is asked and its absent experts are queued behind them, resident experts are computed meanwhile,
arriving ones as they land; outputs are summed in top-k order, so that arrival never changes a bit. Prefill is exact and
evicts nothing; see `expert_prefill`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from engine.experts.formats import ExpertFormat
from engine.experts.prefill import ExpertPrefill, Fetched
from engine.experts.router_tap import RouterTap
from engine.experts.step_state import StepState
from engine.lookahead.prefetching import Prefetching
from offload.geometry import LayerGeometry
from offload.link.link import Copy, Lease
from offload.link.slot_pool import SlotPool
from offload.policies.substitution import Substitution
from offload.residency.cache import ExpertCache


@dataclass(slots=True)
class Machinery:
    """What all MoE layers work with."""

    cache: ExpertCache
    pool: SlotPool
    prefill: ExpertPrefill
    prefetching: Prefetching
    substitution: Substitution
    state: StepState
    expert_compute_s: float = 0.0
    """Time one resident expert's compute takes, measured at warm-up."""


class MoeLayer:
    """One MoE layer's experts: called by the library in place of the experts module's own forward."""

    def __init__(
        self,
        number: int,
        geometry: LayerGeometry,
        layout: ExpertFormat,
        tap: RouterTap,
        shared: Machinery,
    ) -> None:
        self.number, self.geometry, self.tap = number, geometry, tap
        self._layout, self._shared, self._state = layout, shared, shared.state
        self._cache, self._prefetching = shared.cache, shared.prefetching
        self._weights = {slot: layout.bind(shared.pool.tensor(slot)) for slot in shared.pool.slots_of(number)}
        self.last_experts: list[int] = []
        self.last_substitutes: list[int] = []

    def __call__(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """hidden [tokens, hidden], index and weights [tokens, k] -> [tokens, hidden]. Raises WaitCancelled,
        ExpertReadError."""
        if self._state.is_calibrating:
            slots = list(self._weights.values())
            return self._layout.step(hidden, slots[: index.shape[-1]], weights)
        out = self._decode(hidden, index, weights) if self._state.is_decode else self._prefill(hidden, index, weights)
        self._state.after_layer(self.number)
        return out

    def measure_expert_compute_s(self, hidden_dim: int) -> float:
        """Median seconds of one expert on one token, on whatever bytes the first slot holds."""
        bound = next(iter(self._weights.values()))
        hidden, times = torch.zeros(1, hidden_dim), []
        for _ in range(9):
            start = perf_counter()
            self._layout.run(hidden, bound)
            times.append(perf_counter() - start)
        return sorted(times)[4]

    # -- decode -------------------------------------------------------------------------------------------------------

    def _decode(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        began_s, waited_before_s = perf_counter(), self._state.link_wait_s
        experts: list[int] = index[0].tolist()
        if max(experts) >= self.geometry.num_experts:
            experts, weights = self._without_sentinels(experts, weights)
        substitutes, mass = self._substitutes(experts, weights) if self._state.is_approx else ({}, 0.0)
        try:
            leases = self._cache.acquire(self.number, experts, self.tap.scores, substitutes, mass, self._wait)
            self._prefetching.look_ahead(self.number, experts, leases)
            waited_s = self._state.link_wait_s
            ready_s = perf_counter()
            if all(lease.copy is None for lease in leases):
                out = self._layout.step(hidden, [self._weights[lease.slot] for lease in leases], weights)
            else:
                out = self._as_they_land(hidden, leases, weights)
            computed_s = perf_counter()
            self._prefetching.layer_ended(self.number, self._state.link_wait_s - waited_s)
        finally:
            self._cache.release(self.number)
        self.last_experts, self.last_substitutes = experts, list(substitutes.values())
        recorder = self._state.recorder
        if recorder is not None:
            scores = self.tap.scores() if recorder.has_scores else None
            recorder.record(self.number, experts, scores, self._prefetching.predictions.get(self.number))
        self._state.overhead_s += (ready_s - began_s) - (waited_s - waited_before_s) + perf_counter() - computed_s
        return out

    def _without_sentinels(self, experts: list[int], weights: torch.Tensor) -> tuple[list[int], torch.Tensor]:
        kept = [i for i, expert in enumerate(experts) if expert < self.geometry.num_experts]
        return [experts[i] for i in kept], weights[:, kept]

    def _as_they_land(self, hidden: torch.Tensor, leases: list[Lease], weights: torch.Tensor) -> torch.Tensor:
        """Resident experts first, arriving ones in order of need; summed in top-k order all the same."""
        out = torch.empty(len(leases), hidden.shape[-1], dtype=hidden.dtype)
        for position, lease in sorted(enumerate(leases), key=lambda pair: pair[1].copy is not None):
            if lease.copy is not None:
                self._wait(lease.copy)
            out[position] = self._layout.run(hidden, self._weights[lease.slot])[0]
        weighted = out * weights.reshape(-1, 1)
        return weighted.view(1, len(leases), -1).sum(dim=1).to(hidden.dtype)

    def _wait(self, copy: Copy) -> None:
        self._state.link_wait_s += copy.wait(self._state.is_cancelled)

    def _substitutes(self, experts: list[int], weights: torch.Tensor) -> tuple[dict[int, int], float]:
        self._cache.settle(self.number)
        scores = self.tap.selection_scores()
        if scores is None or all(self._cache.is_resident(self.number, expert) for expert in experts):
            return {}, 0.0
        chosen = self._shared.substitution.choose(experts, scores, self._can_substitute, self._is_resident)
        share = weights.reshape(-1).tolist()
        whole = sum(share) or 1.0
        self._state.substituted += len(chosen)
        return chosen, sum(share[i] / whole for i, expert in enumerate(experts) if expert in chosen)

    def _is_resident(self, expert: int) -> bool:
        return self._cache.is_resident(self.number, expert)

    def _can_substitute(self, expert: int) -> bool:
        """Absent, or in flight and not due before the resident ones are computed."""
        copy = self._cache.copy_of(self.number, expert)
        if copy is None:
            return self._cache.is_absent(self.number, expert)
        eta_s = copy.eta_s()
        return eta_s is not None and eta_s > self._shared.expert_compute_s * self.geometry.top_k

    # -- prefill ------------------------------------------------------------------------------------------------------

    def _prefill(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        num_tok, top_k = index.shape
        recorder = self._state.recorder
        if recorder is not None:
            recorder.record(self.number, index.numpy(), self.tap.all_scores() if recorder.has_scores else None)
        order_of, rows_of = self._by_expert(index)
        out = torch.zeros(num_tok * top_k, hidden.shape[-1], dtype=hidden.dtype)
        resident = self._cache.lock_resident(self.number, order_of)
        try:
            for expert, slot in resident.items():
                self._run_rows(self._weights[slot], hidden, rows_of[expert], out, top_k)
            absent = [expert for expert in order_of if expert not in resident]
            with closing(self._shared.prefill.fetch(self.number, absent, num_tok)) as arriving:
                for fetched in arriving:
                    self._run_rows(self._bound(fetched), hidden, rows_of[fetched.expert], out, top_k)
        finally:
            self._cache.release(self.number)
        weighted = out * weights.reshape(-1, 1)
        self.last_experts, self.last_substitutes = order_of, []
        return weighted.view(num_tok, top_k, -1).sum(dim=1).to(hidden.dtype)

    def _bound(self, fetched: Fetched) -> Any:
        if fetched.slot is not None:
            return self._weights[fetched.slot]
        assert fetched.staged is not None, "what is not in a slot is staged"
        return self._layout.bind(fetched.staged)

    def _by_expert(self, index: torch.Tensor) -> tuple[list[int], dict[int, torch.Tensor]]:
        """(experts, most used first; expert -> its rows in the flat [tokens * k] routing).

        Sorted as the library sorts, which with several threads leaves an expert's rows in no order: where a row stands
        in a product can decide its last bit.
        """
        sorted_ids, permutation = torch.sort(index.reshape(-1))
        experts, counts = torch.unique_consecutive(sorted_ids, return_counts=True)
        rows = dict(zip(experts.tolist(), permutation.split(counts.tolist()), strict=True))
        known = [expert for expert in rows if expert < self.geometry.num_experts]
        return sorted(known, key=lambda expert: -rows[expert].numel()), rows

    def _run_rows(self, bound: Any, hidden: torch.Tensor, rows: torch.Tensor, out: torch.Tensor, top_k: int) -> None:
        """One expert on its rows of the flat [tokens * k] routing."""
        out[rows] = self._layout.run(hidden[rows // top_k], bound).to(out.dtype)
