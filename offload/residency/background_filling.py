"""Fills empty slots beside an answer: one that begins before everything was loaded soon misses nothing any more."""

from __future__ import annotations

from offload.residency.cache import ExpertCache


class BackgroundFilling:
    """Of one answer. Once a layer is computed, whatever is absent of it is loaded behind all that steps ask for, if the
    layer has a slot for each expert. A read that fails fails again when the expert is needed, and is told then."""

    def __init__(self, cache: ExpertCache) -> None:
        self._cache = cache
        self._layers = {layer for layer in range(len(cache.slots_per_layer)) if cache.holds_all(layer)}

    def layer_ended(self, layer: int) -> None:
        """A layer is computed, of a prompt or of a token: the first time, its absent experts are queued."""
        if layer in self._layers:
            self._layers.remove(layer)
            for expert in self._cache.absent(layer):
                self._cache.fill(layer, expert)
