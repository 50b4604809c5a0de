"""Two ways to do the same, timed in pairs: how many times as long the one takes, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

WITHIN, BEYOND, UNDECIDED = "within the limit", "beyond the limit", "not decided: the interval holds the limit"
"""What an interval says of a limit."""

_CONFIDENCE = 0.95
_NUM_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """The median of the pairs' ratios, and the interval that holds it with 95 % confidence."""

    median: float
    low: float
    high: float
    num_pairs: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> PairedRatio:
        """Of (time of the one, time of the other), at least one pair. The interval is the percentile bootstrap
        (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13) over whole pairs, with a fixed seed."""
        ratios = [one / other for one, other in pairs]
        random = Random(0)
        medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(_NUM_DRAWS))
        outside = round(_NUM_DRAWS * (1 - _CONFIDENCE) / 2)
        return cls(statistics.median(ratios), medians[outside], medians[-1 - outside], len(ratios))

    def verdict(self, limit: float) -> str:
        """Whether the whole interval is within `limit`, or beyond it, or neither."""
        if self.high <= limit:
            return WITHIN
        return BEYOND if self.low > limit else UNDECIDED
