"""Chooses the substitutes of missed experts in APPROX mode (AES): one rule per file. Pure: no tensors, I/O or clock."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

_RULES = {
    "boundary": ("offload.policies.substitution.boundary", "BoundarySubstitution"),
    "none": ("offload.policies.substitution.none", "NoSubstitution"),
}

SUBSTITUTION_NAMES = tuple(_RULES)
"""Names `make_substitution` knows."""


class Substitution(Protocol):
    """Decides which misses of one token in one layer a resident expert may stand in for."""

    def choose(
        self,
        experts: Sequence[int],
        scores: np.ndarray,
        can_substitute: Callable[[int], bool],
        is_resident: Callable[[int], bool],
    ) -> dict[int, int]:
        """Missed expert -> the resident, unselected expert that stands in for it; distinct ones.

        `experts` are the selected ones, `scores` [num_experts] what they were selected by (any bias included).
        `can_substitute(expert)`: absent, or not due in time. `is_resident(expert)`: usable at once.
        """
        ...


def make_substitution(name: str, alpha: float) -> Substitution:
    """The rule called `name`, with `alpha` in units of the selection score. Raises ValueError for an unknown name."""
    if name not in _RULES:
        raise ValueError(f"unknown substitution {name!r}: choose one of {', '.join(SUBSTITUTION_NAMES)}")
    module, attribute = _RULES[name]
    return cast(Substitution, getattr(importlib.import_module(module), attribute)(alpha))
