"""Fills empty slots beside decode: an answer that begins before everything was loaded soon misses nothing any more."""

from __future__ import annotations

from offload.link.expert_link import ExpertCopy
from offload.residency.cache import ExpertCache

_MAX_COPIES = 2
"""On their way at once: the link is never idle, and what a step asks for waits for one of them at most."""


class BackgroundFilling:
    """Of one answer. Loads the absent experts of layers that have a slot for each, behind all that steps ask for.

    Each is tried once: a read that fails fails again when the expert is needed, and is told then.
    """

    def __init__(self, cache: ExpertCache) -> None:
        """Looks at what is absent now."""
        self._cache = cache
        layers = range(len(cache.slots_per_layer))
        self._absent = [cache.absent(layer)[::-1] if cache.holds_all(layer) else [] for layer in layers]
        self._copies: list[ExpertCopy] = []
        self.is_done = not any(self._absent)
        """Nothing is left to be submitted."""

    def layer_ended(self, layer: int) -> None:
        """A layer's decode step is over: the link may begin with more of its experts."""
        if self.is_done:
            return
        self._copies = [copy for copy in self._copies if not copy.is_done]
        absent = self._absent[layer]
        while absent and len(self._copies) < _MAX_COPIES:
            copy = self._cache.fill(layer, absent.pop())
            if copy is not None:
                self._copies.append(copy)
        if not absent:
            self.is_done = not any(self._absent)
