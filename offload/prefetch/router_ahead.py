"""The next layer's own router, run one layer early."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload.prefetch.overlap_window import Window


class RouterAheadPrefetcher:
    """Fetches the best-ranked absent experts of the prediction, at most `depth` of them.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism" (the router of layer l+1 on the hidden state of
    layer l), with a fixed depth in place of the overlap window's.
    """

    needs_window = False

    def __init__(self, depth: int) -> None:
        """Raises ValueError for a negative depth."""
        if depth < 0:
            raise ValueError(f"prefetch depth is {depth}")
        self.depth = depth
        self.needs_prediction = depth > 0

    def plan(
        self, predicted: Sequence[int], is_absent: Callable[[int], bool], window: Window | None = None, layer: int = 0
    ) -> list[int]:
        """See Prefetcher."""
        return best_absent(predicted, is_absent, self.depth)

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """See Prefetcher."""


def best_absent(predicted: Sequence[int], is_absent: Callable[[int], bool], depth: int) -> list[int]:
    """The first `depth` absent experts of a ranking."""
    planned: list[int] = []
    for expert in predicted:
        if len(planned) >= depth:
            break
        if is_absent(expert):
            planned.append(expert)
    return planned
