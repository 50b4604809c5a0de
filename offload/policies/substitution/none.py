"""No substitution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class NoSubstitution:
    """Every miss is copied."""

    def __init__(self, alpha: float = 0.0) -> None:
        """`alpha` is ignored; every rule has it."""

    def choose(
        self,
        experts: Sequence[int],
        scores: np.ndarray,
        can_substitute: Callable[[int], bool],
        is_resident: Callable[[int], bool],
    ) -> dict[int, int]:
        """See Substitution."""
        return {}
