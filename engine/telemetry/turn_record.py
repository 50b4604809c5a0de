"""One answer's record, as it is stored with the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from engine.backends.token_history import TokenHistory
from engine.events import LABEL_APPROX, LABEL_APPROX_CONTEXT, LABEL_EXACT, LABEL_NO_TOKENS, TurnStats
from engine.telemetry.snapshots import Telemetry


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
        runs_on: str = "",
    ) -> None:
        self._telemetry, self._prompt_tok, self.reused_tok = telemetry, prompt_tok, reused_tok
        self._num_left_out, self._runs_on = num_left_out, runs_on
        self._thinking_tok = 0
        self._thinking_began_s = self._thinking_ended_s = 0.0
        self._describe_link = describe_link
        self._clock = telemetry.begin_turn(started_s)
        self._served_before = Counter(telemetry.served)
        self._prefill_bytes: int | None = None
        self._is_on_approximate_context = False
        self.new_tok = 0

    def prefill_done(self) -> None:
        """Ends prefill: bytes copied later count as decode's, and the limit's recording starts."""
        self._prefill_bytes = self._telemetry.turn_counters().bytes_loaded
        self._telemetry.limit.begin()

    def see(self, kv: TokenHistory) -> None:
        """Records whether the answer builds on an approximate KV cache, which may be dropped before the end."""
        self._is_on_approximate_context |= kv.is_approximate

    def token(self) -> None:
        """Counts a token. Call when it was drawn."""
        self._clock.token()
        self.new_tok += 1

    def thought(self) -> None:
        """Counts the last token as thinking."""
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
            runs_on=self._runs_on,
        )
