"""How many times the physical limit an answer took: its TPOT over the least that this machine allows.

The limit of a token is the larger of its compute and of the copies nobody could do without. Compute: the quickest step
seen, that of the calibration at load among them. Copies: Belady's bound over one pool of the same bytes, from what was
resident when decode began, at the best bandwidth the link has shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.offloaded_model import OffloadedModel
from offload.belady import belady_pool_loads
from offload.trace_writer import TraceWriter

_MAX_ROUTED = 100_000
"""The bound is found over the answer's first tokens, up to so many routed experts: a fraction of a second."""


class LimitGauge:
    """Takes down the routing of one answer after the other. Only the engine's thread touches it."""

    def __init__(self, engine: OffloadedModel) -> None:
        self._engine = engine
        self._geometry = engine.loaded.plan.geometry
        self._expert_bytes = max(layer.expert_bytes for layer in self._geometry.layers)
        self._writer: TraceWriter | None = None
        self._initial: list[list[int]] = []
        self._loads_per_tok = 0.0
        self._floor_ms = engine.compute_floor_ms
        self.times_the_limit: float | None = None
        """Of the last answer; None where it has no second token, or stand-ins took the place of copies."""

    def begin(self) -> None:
        """Decode begins."""
        cache = self._engine.cache
        self.times_the_limit = None
        self._initial = [
            [expert for expert in range(layer.num_experts) if cache.is_resident(number, expert)]
            for number, layer in enumerate(self._geometry.layers)
        ]
        self._writer = self._engine.state.recorder = TraceWriter("", "", self._geometry, has_scores=False)
        self._writer.begin_prompt()

    def end(self, tpot_ms: Sequence[float], is_exact: bool) -> None:
        """Decode is over; `tpot_ms`: of every token but the first. Does nothing unless `begin` was called."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._engine.state.recorder = None
        self._floor_ms = min((self._floor_ms, *tpot_ms))
        routed_per_tok = sum(layer.top_k for layer in self._geometry.layers)
        num_tok = min(len(tpot_ms), writer.num_steps, _MAX_ROUTED // routed_per_tok)
        if not is_exact or num_tok < 1:
            return
        trace = writer.trace(num_tok)
        loads = belady_pool_loads(trace, self._engine.cache.slots_per_layer, self._initial)
        self._loads_per_tok = loads / num_tok
        self.times_the_limit = statistics.fmean(tpot_ms[:num_tok]) / self._limit_ms()

    def estimate(self, tpot_ms: Sequence[float]) -> float | None:
        """While an answer is written: against its compute, and the copies of a token of the last answer."""
        if not tpot_ms:
            return None
        self._floor_ms = min(self._floor_ms, tpot_ms[-1])
        return statistics.fmean(tpot_ms) / self._limit_ms()

    def _limit_ms(self) -> float:
        link = self._engine.link
        rate = link.emulated_bytes_per_s or link.best_bytes_per_s
        copies_ms = self._loads_per_tok * self._expert_bytes / rate * 1000 if rate else 0.0
        return max(self._floor_ms, copies_ms)
