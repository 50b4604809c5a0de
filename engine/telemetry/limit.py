"""An answer's TPOT as a multiple of the physical limit: the lowest TPOT that this machine allows.

The limit of a token is the larger of its compute time and the time of the copies that no policy can avoid. Compute: the
quickest steps seen at contexts as long as the answer's, those of the calibration at load among them (`ComputeFloor`).
Copies: Belady's bound over one pool of the same bytes, from the experts resident when decode began, at the highest
bandwidth measured on the link.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from engine.backends.offloaded_model import OffloadedModel
from engine.telemetry.compute_floor import ComputeFloor
from offload.replay.belady import belady_pool_loads
from offload.replay.trace_writer import TraceWriter

_MAX_ROUTED = 60_000
"""The bound is computed over the answer's first tokens, up to this many routed experts: a fraction of a second."""


class LimitGauge:
    """Records the routing of each answer and computes its multiple of the limit. For the engine's thread only."""

    def __init__(self, engine: OffloadedModel) -> None:
        self._engine = engine
        self._geometry = engine.loaded.plan.geometry
        self._max_tok = max(_MAX_ROUTED // sum(layer.top_k for layer in self._geometry.layers), 1)
        self._writer: TraceWriter | None = None
        self._initial: Sequence[Sequence[int]] = ()
        self._loads_per_tok: float | None = None
        self._floor = ComputeFloor(engine.compute_floors_ms, engine.budget.context_tok)
        self._first_past_tok = self._num_observed = 0
        self.times_the_limit: float | None = None
        """Of the last answer; None where it has no second token, or experts were substituted."""

    def clear(self) -> None:
        """Drops the last answer's figure. Call when an answer begins."""
        self.times_the_limit = None

    def begin(self) -> None:
        """Starts recording. Call when decode begins."""
        self._initial = self._engine.cache.residents()
        self._first_past_tok, self._num_observed = len(self._engine.decoder.cache.tokens), 0
        self._writer = self._engine.state.recorder = TraceWriter(
            "", "", self._geometry, has_scores=False, has_predictions=False
        )
        self._writer.begin_prompt()

    def see(self) -> None:
        """Stops recording once there is enough for the bound. Call between tokens."""
        if self._writer is not None and self._writer.num_steps >= self._max_tok:
            self._engine.state.recorder = None

    def stop(self) -> None:
        """Stops recording. Call when decode ends, for any reason."""
        if self._writer is not None:
            self._engine.state.recorder = None

    def measure(self, tpot_ms: Sequence[float], is_exact: bool) -> None:
        """Computes `times_the_limit` of the answer that ended; `tpot_ms`: of all tokens but the first. Takes up to a
        fraction of a second. Does nothing if `begin` was not called."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._observe(tpot_ms)
        num_tok = min(len(tpot_ms), writer.num_steps, self._max_tok)
        if not is_exact or num_tok < 1:
            return
        loads = belady_pool_loads(writer.trace(num_tok), self._engine.cache.slots_per_layer, self._initial)
        self._loads_per_tok = loads / num_tok
        self.times_the_limit = statistics.fmean(tpot_ms[:num_tok]) / self._limit_ms(self._loads_per_tok, num_tok)

    def estimate(self, tpot_ms: Sequence[float]) -> float | None:
        """The multiple while an answer is written, with the loads per token of the last measured answer.

        None before an answer was measured. Lowers the compute floor by the new steps.
        """
        if not tpot_ms or self._loads_per_tok is None:
            return None
        self._observe(tpot_ms)
        return statistics.fmean(tpot_ms) / self._limit_ms(self._loads_per_tok, len(tpot_ms))

    def _observe(self, tpot_ms: Sequence[float]) -> None:
        """Lowers the floor by the steps not seen before; `tpot_ms` grows while an answer is written."""
        first = self._num_observed if self._num_observed < len(tpot_ms) else 0
        for number in range(first, len(tpot_ms)):
            self._floor.observe(self._first_past_tok + number, tpot_ms[number])
        self._num_observed = len(tpot_ms)

    def _limit_ms(self, loads_per_tok: float, num_tok: int) -> float:
        """Milliseconds a token, over the answer's first `num_tok` tokens after the one that prefill gave."""
        link = self._engine.link
        rate = link.emulated_bytes_per_s or link.best_bytes_per_s
        copies_ms = loads_per_tok * self._geometry.largest_expert_bytes / rate * 1000 if rate else 0.0
        return max(self._floor.mean(self._first_past_tok, num_tok), copies_ms)
