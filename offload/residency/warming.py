"""Makes experts resident before they are asked for: those of a domain's profile, of a bench, or all of a layer's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload.errors import WaitCancelled
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


def fill_layers(cache: ExpertCache, is_over: Callable[[], bool], on_landed: Callable[[], None] = lambda: None) -> int:
    """Loads the absent experts of layers that have a slot for each, in the order of layers and numbers, until
    `is_over()`; returns how many landed. Evicts nothing, and leaves layers alone where experts have to be chosen.

    Copies that have not begun by then are taken back; those on the link land later. `on_landed` is called after each
    expert. Raises ExpertReadError.
    """
    num_landed = 0
    for layer in range(len(cache.slots_per_layer)):
        if is_over():
            break
        if not cache.holds_all(layer):
            continue
        try:
            for copy in cache.warm(layer, cache.absent(layer)):
                copy.wait(is_over)
                num_landed += 1
                on_landed()
        except WaitCancelled:
            break
        finally:
            cache.release(layer)
    return num_landed
