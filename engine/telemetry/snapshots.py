"""The snapshot that the panels read: built by the engine's thread, a few times a second."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import monotonic

from engine.backends.offloaded_model import OffloadedModel
from engine.backends.token_history import TokenHistory
from engine.events import LinkUse, MemoryUse, Snapshot, Timing
from engine.experts.layer import MoeLayer
from engine.plan import machine
from engine.telemetry.limit import LimitGauge
from engine.telemetry.turn_clock import TurnClock
from offload.counters import Counters
from offload.residency.codes import marked

SNAPSHOT_PERIOD_S = 0.125


class Telemetry:
    """Collects what snapshots show, and builds them. For the engine's thread only."""

    def __init__(self, engine: OffloadedModel) -> None:
        self._engine, self._state, self._plan = (
            engine,
            engine.state,
            engine.budget,
        )  # cache and link: a rebuild replaces them
        self.limit = LimitGauge(engine)
        self._sequence = 0
        self._turn_start = Counters()
        self._turn_end: Counters | None = None
        self._clock: TurnClock | None = None
        self._published_s = 0.0
        self.phase = "idle"
        self.mode = "exact"
        self.context_used_tok = 0
        self.is_context_approximate = False

    @property
    def served(self) -> Counter[str]:
        """How many layers' prefills took which path, since load."""
        return self._engine.prefill.served

    def see(self, kv: TokenHistory) -> None:
        """Updates the context's length from the KV cache. Call between tokens."""
        self.context_used_tok, self.is_context_approximate = len(kv.tokens), kv.is_approximate
        self.limit.see()

    def begin_turn(self, started_s: float) -> TurnClock:
        """A new answer: its counters start at zero."""
        self._turn_start, self._turn_end = self._engine.cache.total_counters(), None
        self._clock = TurnClock(self._state, started_s)
        self.limit.clear()
        return self._clock

    def end_turn(self) -> None:
        """The answer is complete: its counters are frozen until the next answer begins."""
        self._turn_end = self._engine.cache.total_counters()
        self.limit.stop()

    def measure_limit(self) -> None:
        """Computes the ended answer's multiple of the physical limit (see LimitGauge)."""
        self.limit.measure(self._clock.tpot_ms if self._clock else (), not self.turn_counters().substituted)

    def is_due(self) -> bool:
        """Whether a snapshot is due; cheap enough to ask after every layer."""
        now = monotonic()
        if now - self._published_s < SNAPSHOT_PERIOD_S:
            return False
        self._published_s = now
        return True

    def turn_counters(self) -> Counters:
        """Of the answer being written, or of the last one."""
        return self._of_turn(self._engine.cache.total_counters())

    def _of_turn(self, total: Counters) -> Counters:
        return (self._turn_end or total) - self._turn_start

    def snapshot(self) -> Snapshot:
        """Everything the panels show, as of now."""
        self._sequence += 1
        per_layer = tuple(self._engine.cache.counters(layer.number) for layer in self._engine.layers)
        total = Counters.total(per_layer)
        turn = self._of_turn(total)
        is_running = self.phase in ("prefill", "decode")
        groups = self._engine.cache.slot_groups
        return Snapshot(
            sequence=self._sequence,
            phase=self.phase,
            mode=self.mode,
            residency=tuple(self._codes(layer, is_running) for layer in self._engine.layers),
            slots_per_layer=groups.shares,
            layer_numbers=tuple(layer.geometry.layer_number for layer in self._engine.layers),
            layer_counters=per_layer,
            turn_counters=turn,
            prefetch_depth=self._engine.prefetching.depth,
            context_used_tok=self.context_used_tok,
            context_tok=self._plan.context_tok,
            timing=self._timing(is_exact=not turn.substituted),
            memory=self.memory(),
            link=self.link(),
            is_context_approximate=self.is_context_approximate,
            num_pool_slots=0 if groups.is_per_layer else groups.num_slots,
            counters=total,
        )

    def _timing(self, *, is_exact: bool) -> Timing:
        if self._clock is None:
            return Timing()
        timing = self._clock.timing()
        if self._turn_end is None:
            return replace(timing, times_the_limit=self.limit.estimate(self._clock.tpot_ms) if is_exact else None)
        return replace(timing, times_the_limit=self.limit.times_the_limit, is_limit_estimate=False)

    def _codes(self, layer: MoeLayer, is_running: bool) -> bytes:
        if not is_running or self.phase == "prefill":
            return self._engine.cache.residency_codes(layer.number)
        chosen = [expert for expert in layer.last_experts if self._engine.cache.is_resident(layer.number, expert)]
        return marked(self._engine.cache.residency_codes(layer.number), chosen, layer.last_substitutes)

    def memory(self) -> MemoryUse:
        """The planned bytes, and what the process holds now and held at most."""
        return MemoryUse(self._plan.budget_bytes, self._plan.parts, machine.rss_bytes(), machine.peak_rss_bytes())

    def link(self) -> LinkUse:
        """The link as measured."""
        link = self._engine.link
        return LinkUse(
            link.bytes_per_s, link.best_bytes_per_s, link.emulated_bytes_per_s, link.queued, link.bytes_moved
        )
