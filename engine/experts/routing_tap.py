"""What a MoE layer is told of its router, whichever back end runs it."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class RoutingTap(Protocol):
    """What a MoE layer is told of its router in the running forward, by whichever back end runs it."""

    def scores(self) -> np.ndarray | None:
        """The current token's score per expert, float32 [num_experts]; None where the router gives none."""
        ...

    def all_scores(self) -> np.ndarray | None:
        """The scores of every token of the running forward, float32 [tokens, num_experts]; None without any."""
        ...

    def selection_scores(self) -> np.ndarray | None:
        """What the router ranked for the current token, -inf for experts it could not choose: float32 [num_experts].
        To be asked in APPROX decode. None where the router gives none."""
        ...
