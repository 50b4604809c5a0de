"""No prefetch."""

from __future__ import annotations

from collections.abc import Sequence

from offload.policies.forecast import ROUTERS
from offload.policies.prefetch import Outlook


class NoPrefetcher:
    """Fetches nothing ahead."""

    num_layers_ahead = 0
    needs_window = False
    waits_for_first_expert = False
    source = ROUTERS

    def __init__(self, depth: int = 0) -> None:
        """`depth` is ignored; every prefetcher has it."""

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """See Prefetcher."""
        return []

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""
