"""The lower bound of a token's compute time, which grows with the context's length (attention)."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BUCKET_TOK = 64


class ComputeFloor:
    """A line through the calibrated steps, lowered by every quicker step seen at the same or a longer context.

    Compute does not fall as the context grows, so a step at one length bounds the floor of all shorter ones. Kept by
    buckets of 64 tokens, with the floor of each bucket's first token.
    """

    def __init__(self, calibrated: Sequence[tuple[int, float]], context_tok: int) -> None:
        """`calibrated`: (tokens before the step, milliseconds), one or two; one alone counts for every length."""
        first, last = calibrated[0], calibrated[-1]
        first_ms = min(first[1], last[1])  # a longer context is faster only by noise
        growth_ms = (last[1] - first_ms) / (last[0] - first[0]) if last[0] > first[0] else 0.0
        count = context_tok // _BUCKET_TOK + 1
        self._floors_ms = [first_ms + growth_ms * number * _BUCKET_TOK for number in range(count)]

    def at(self, past_tok: int) -> float:
        """Milliseconds of a token behind `past_tok` others."""
        return self._floors_ms[self._bucket(past_tok)]

    def observe(self, past_tok: int, step_ms: float) -> None:
        """Lowers the floor if a token behind `past_tok` others took less."""
        bucket = self._bucket(past_tok)
        while bucket >= 0 and self._floors_ms[bucket] > step_ms:
            self._floors_ms[bucket] = step_ms
            bucket -= 1

    def mean(self, first_past_tok: int, num_tok: int) -> float:
        """Milliseconds a token over `num_tok` of them, the first one behind `first_past_tok` others."""
        total_ms, past_tok, end_tok = 0.0, first_past_tok, first_past_tok + num_tok
        while past_tok < end_tok:
            bucket_end_tok = min((past_tok // _BUCKET_TOK + 1) * _BUCKET_TOK, end_tok)
            total_ms += self.at(past_tok) * (bucket_end_tok - past_tok)
            past_tok = bucket_end_tok
        return total_ms / num_tok if num_tok else math.nan

    def _bucket(self, past_tok: int) -> int:
        return min(past_tok // _BUCKET_TOK, len(self._floors_ms) - 1)
