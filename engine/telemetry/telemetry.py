"""What is measured of an answer, and the snapshot the panels read: built by the engine's thread, a few times a
second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.kv_cache import KvCache
from engine.events import (
    LABEL_APPROX,
    LABEL_APPROX_CONTEXT,
    LABEL_EXACT,
    LABEL_NO_TOKENS,
    LinkUse,
    MemoryUse,
    Snapshot,
    Timing,
    TurnStats,
)
from engine.experts.layer import MoeLayer
from engine.plan import machine
from engine.telemetry.limit import LimitGauge
from engine.telemetry.turn_clock import TurnClock
from offload.counters import Counters

SNAPSHOT_PERIOD_S = 0.125


class Telemetry:
    """Holds what the snapshot is made of. Only the engine's thread touches it."""

    def __init__(self, engine: OffloadedModel) -> None:
        self._engine, self._state, self._plan = engine, engine.state, engine.budget  # its machinery may be rebuilt
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

    def see(self, kv: KvCache) -> None:
        """Notes what the KV cache holds."""
        self.context_used_tok, self.is_context_approximate = len(kv.tokens), kv.is_approximate
        self.limit.see()

    def begin_turn(self, started_s: float) -> TurnClock:
        """A new answer: its counters start at zero."""
        self._turn_start, self._turn_end = self._engine.cache.total_counters(), None
        self._clock = TurnClock(self._state, started_s)
        self.limit.clear()
        return self._clock

    def end_turn(self) -> None:
        """The answer is complete; its figures stay on show."""
        self._turn_end = self._engine.cache.total_counters()
        self.limit.stop()

    def measure_limit(self) -> None:
        """How near the answer that ended came to what is possible."""
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
        return Snapshot(
            sequence=self._sequence,
            phase=self.phase,
            mode=self.mode,
            residency=tuple(self._codes(layer, is_running) for layer in self._engine.layers),
            slots_per_layer=self._engine.cache.slots_per_layer,
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
        return self._engine.cache.residency_codes(layer.number, chosen, layer.last_substitutes)

    def memory(self) -> MemoryUse:
        """The plan against what the process holds."""
        return MemoryUse(self._plan.budget_bytes, self._plan.parts, machine.rss_bytes(), machine.peak_rss_bytes())

    def link(self) -> LinkUse:
        """The link as measured."""
        link = self._engine.link
        return LinkUse(
            link.bytes_per_s, link.best_bytes_per_s, link.emulated_bytes_per_s, link.queued, link.bytes_moved
        )


class TurnRecord:
    """Collects one answer's record, for `TurnStats`."""

    def __init__(
        self,
        telemetry: Telemetry,
        prompt_tok: int,
        reused_tok: int,
        started_s: float,
        describe_link: Callable[[], str],
        num_left_out: int = 0,
    ) -> None:
        self._telemetry, self._prompt_tok, self.reused_tok = telemetry, prompt_tok, reused_tok
        self._num_left_out = num_left_out
        self._thinking_tok = 0
        self._thinking_began_s = self._thinking_ended_s = 0.0
        self._describe_link = describe_link
        self._clock = telemetry.begin_turn(started_s)
        self._served_before = Counter(telemetry.served)
        self._prefill_bytes: int | None = None
        self._is_on_approximate_context = False
        self.new_tok = 0

    def prefill_done(self) -> None:
        """Bytes moved from here on are decode's."""
        self._prefill_bytes = self._telemetry.turn_counters().bytes_loaded
        self._telemetry.limit.begin()

    def see(self, kv: KvCache) -> None:
        """Notes whether the answer builds on approximate text: known even if the cache is dropped afterwards."""
        self._is_on_approximate_context |= kv.is_approximate

    def token(self) -> None:
        """One more token was drawn."""
        self._clock.token()
        self.new_tok += 1

    def thought(self) -> None:
        """The last token was thinking."""
        self._thinking_ended_s = self._clock.last_s
        if not self._thinking_tok:
            self._thinking_began_s = self._thinking_ended_s
        self._thinking_tok += 1

    def _prefill_path(self) -> str:
        """How many layers' prefills took which path, the most frequent first."""
        served = self._telemetry.served - self._served_before
        whole = sum(served.values())
        return ", ".join(f"{path} ({count} of {whole})" for path, count in served.most_common())

    def stats(self) -> TurnStats:
        """The record as it stands."""
        counters, timing, split = self._telemetry.turn_counters(), self._clock.timing(), self._clock.split()
        prefill_bytes = self._prefill_bytes if self._prefill_bytes is not None else counters.bytes_loaded
        label = LABEL_APPROX_CONTEXT if self._is_on_approximate_context else LABEL_EXACT
        if counters.substituted:
            label = LABEL_APPROX
        if not self.new_tok:
            label = LABEL_NO_TOKENS
        return TurnStats(
            prompt_tok=self._prompt_tok,
            reused_tok=self.reused_tok,
            new_tok=self.new_tok,
            ttft_ms=timing.ttft_ms,
            tpot_ms=timing.tpot_mean_ms,
            tpot_p50_ms=timing.tpot_p50_ms,
            tpot_p95_ms=timing.tpot_p95_ms,
            link_wait_ms=split.link_wait_ms if split else None,
            counters=counters,
            prefill_bytes=prefill_bytes,
            decode_bytes=counters.bytes_loaded - prefill_bytes,
            label=label,
            prefill_path=self._prefill_path(),
            link=self._describe_link(),
            thinking_tok=self._thinking_tok,
            thinking_ms=(self._thinking_ended_s - self._thinking_began_s) * 1000 if self._thinking_tok else None,
            left_out_messages=self._num_left_out,
            compute_ms=split.compute_ms if split else None,
            overhead_ms=split.overhead_ms if split else None,
            times_the_limit=self._telemetry.limit.times_the_limit,
        )
