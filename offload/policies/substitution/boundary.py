"""Substitution of misses that were barely selected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class BoundarySubstitution:
    """A miss may be replaced when its score exceeds the best unselected one, of rank k+1, by at most alpha.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism". The best-scoring resident unselected expert
    stands in for the best-scoring replaceable miss, the next for the next. Equal scores: the lower expert number goes
    first. Scores that are not finite (masked out by the router) neither replace nor are replaced.
    """

    def __init__(self, alpha: float) -> None:
        """Raises ValueError for a negative alpha."""
        if not alpha >= 0:
            raise ValueError(f"alpha is {alpha}")
        self.alpha = alpha

    def choose(
        self,
        experts: Sequence[int],
        scores: np.ndarray,
        can_substitute: Callable[[int], bool],
        is_resident: Callable[[int], bool],
    ) -> dict[int, int]:
        """See Substitution."""
        missed = [expert for expert in experts if can_substitute(expert)]
        if not missed:
            return {}
        values: list[float] = scores.tolist()
        selected = set(experts)
        unselected = [e for e, value in enumerate(values) if e not in selected and math.isfinite(value)]
        if not unselected:
            return {}
        unselected.sort(key=lambda expert: (-values[expert], expert))
        highest = values[unselected[0]] + self.alpha
        replaceable = [expert for expert in missed if math.isfinite(values[expert]) and values[expert] <= highest]
        replaceable.sort(key=lambda expert: (-values[expert], expert))
        return dict(zip(replaceable, filter(is_resident, unselected), strict=False))
