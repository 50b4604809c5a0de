"""Fills empty slots beside an answer: one that begins before everything was loaded soon misses nothing any more."""

from __future__ import annotations

from offload.residency.cache import ExpertCache


class BackgroundFilling:
    """Of one answer. Once a layer is computed, whatever is absent of it is queued behind all that steps ask for, where
    every layer has a slot for each expert. A read that fails fails again when the expert is needed, and is told."""

    def __init__(self, cache: ExpertCache) -> None:
        self._cache = cache
        layers = range(len(cache.slots_per_layer))
        self._left = set(layers) if all(map(cache.holds_all, layers)) else set()
        """Layers of which nothing was queued."""

    def layer_ended(self, layer: int) -> None:
        """A layer's experts are computed, of a whole prompt or of a token. Acts the first time."""
        if layer in self._left:
            self._left.remove(layer)
            self._cache.fill(layer)

    def end(self) -> None:
        """The answer is over: takes back what the link has not begun."""
        for layer in range(len(self._cache.slots_per_layer)):
            self._cache.stop_filling(layer)
