"""A layer's hit rate over its number of slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class HitRateCurve:
    """Replayed hit rates of one layer."""

    first_slots: int
    """The slot count of `rates[0]`: the layer's k."""
    rates: np.ndarray
    """float64 [num_experts - k + 1], in [0, 1]: the last is with all experts resident."""

    def at(self, slots: int) -> float:
        """The hit rate with so many slots; outside of what was replayed, that of the nearest count that was."""
        return float(self.rates[min(max(slots - self.first_slots, 0), len(self.rates) - 1)])


def mean_curves(profiles: Sequence[Sequence[HitRateCurve]]) -> tuple[HitRateCurve, ...]:
    """Per layer, the mean over profiles of the same model. Raises ValueError for no profiles."""
    if not profiles:
        raise ValueError("there are no curves to take the mean of")
    return tuple(
        HitRateCurve(curves[0].first_slots, np.mean([curve.rates for curve in curves], axis=0))
        for curves in zip(*profiles, strict=True)
    )
