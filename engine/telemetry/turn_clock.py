"""The times of one answer: to its first token, between its tokens, and how decode time is split."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import NamedTuple

from engine.events import Timing
from engine.experts.step_state import StepState
from offload.counters import ratio

_RECENT_TOK = 64


def percentile(values: list[float], share: float) -> float | None:
    """The nearest-rank percentile; None without values."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else None


class DecodeSplit(NamedTuple):
    """Where the time from the first token of an answer to its last went; the three add up to it."""

    compute_ms: float
    """In the model's forward, apart from the waits and the overhead within it: attention, routers, experts, head,
    and the library's code around them and our hooks, which are not measured apart."""
    link_wait_ms: float
    """Blocked until an expert arrived: summed up by every wait for a copy."""
    overhead_ms: float
    """The rest. Within the forward, per MoE layer: from its call to the start of its experts' arithmetic (routing,
    residency, substitution, the next routers asked, copies submitted; waits excepted), from its end to the layer's end
    (prefetch and cache bookkeeping, recording), and snapshots. Between two forwards: sampling, detokenising, events."""


class TurnClock:
    """Times one answer: from its submission over the first token to the last."""

    def __init__(self, state: StepState, started_s: float) -> None:
        """`started_s`: when the question arrived, by `perf_counter`."""
        self._state, self._start = state, started_s
        self._last: float | None = None
        self._first_sums = self._last_sums = (0.0, 0.0, 0.0)
        self.ttft_ms: float | None = None
        self.tpot_ms: list[float] = []

    def token(self) -> None:
        """Records the time of a token. Call when it was drawn."""
        now, state = perf_counter(), self._state
        self._last_sums = (state.forward_s, state.link_wait_s, state.overhead_s)
        if self._last is None:
            self.ttft_ms = (now - self._start) * 1000
            self._first_sums = self._last_sums
        else:
            self.tpot_ms.append((now - self._last) * 1000)
        self._last = now

    @property
    def last_s(self) -> float:
        """When the last token was drawn, by `perf_counter`."""
        return self._last if self._last is not None else self._start

    def split(self) -> DecodeSplit | None:
        """Where the decode time went; None before the second token."""
        if not self.tpot_ms:
            return None
        forward_ms, wait_ms, inner_ms = (
            (last - first) * 1000 for first, last in zip(self._first_sums, self._last_sums, strict=True)
        )
        compute_ms = forward_ms - wait_ms - inner_ms
        return DecodeSplit(compute_ms, wait_ms, sum(self.tpot_ms) - compute_ms - wait_ms)

    def timing(self) -> Timing:
        """For the snapshot."""
        times, split = self.tpot_ms, self.split()
        total_ms = sum(times)
        return Timing(
            ttft_ms=self.ttft_ms,
            tpot_now_ms=times[-1] if times else None,
            tpot_mean_ms=statistics.fmean(times) if times else None,
            tpot_p50_ms=percentile(times, 0.5),
            tpot_p95_ms=percentile(times, 0.95),
            link_wait_rate=ratio(split.link_wait_ms, total_ms) if split else None,
            recent_tpot_ms=tuple(times[-_RECENT_TOK:]),
            compute_rate=ratio(split.compute_ms, total_ms) if split else None,
            overhead_rate=ratio(split.overhead_ms, total_ms) if split else None,
        )
