"""Makes given experts resident before decode: those of a domain's profile, or of a bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload.residency.cache import ExpertCache


def warm_layers(
    cache: ExpertCache, experts: Sequence[Sequence[int]], is_cancelled: Callable[[], bool] | None = None
) -> int:
    """Makes `experts[l]`, at most as many as layer l has slots, resident; returns how many were copied.

    Raises ExpertReadError, WaitCancelled, with the layers before the failing one warm.
    """
    num_copied = 0
    for layer, chosen in enumerate(experts):
        copies = cache.warm(layer, chosen)
        for copy in copies:
            copy.wait(is_cancelled)
        cache.settle(layer)
        num_copied += len(copies)
    return num_copied
