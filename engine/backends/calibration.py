"""Measures a loaded model before it answers: the best number of compute threads, and the shortest decode step.

Steps compute real experts' products, on the bytes that slots happen to hold; the cache is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from engine.backends.backend import Backend
from engine.experts.expert_runtime import ExpertRuntime
from engine.experts.step_state import StepState
from engine.plan.link_load import LinkLoad
from engine.plan.threads import ThreadChoice, choose_threads
from offload.errors import WaitCancelled
from offload.geometry import Geometry

_FLOOR_STEPS = 2


class Calibration:
    """Runs decode steps on an empty KV cache, or on one that is assumed to hold tokens. Leaves the cache empty."""

    def __init__(self, backend: Backend, state: StepState) -> None:
        self._backend, self._state = backend, state

    def choose_threads(
        self, asked: int | None, runtime: ExpertRuntime, geometry: Geometry, source: Any
    ) -> ThreadChoice:
        """As `engine.plan.threads.choose_threads`. Reads experts into the last slots of `runtime`, which must be empty.
        Raises WaitCancelled."""
        link = runtime.link
        layers = [number % geometry.num_layers for number in range(link.num_threads)]
        taken: set[int] = set()
        destinations = []
        for layer in layers:
            slot = next((slot for slot in reversed(runtime.cache.slots_of_layer(layer)) if slot not in taken), None)
            if slot is not None:
                taken.add(slot)
                memory = runtime.pool.memory(slot)[: geometry.layers[layer].expert_bytes]
                destinations.append((layer, memory))
        num_experts = [layer.num_experts for layer in geometry.layers]
        with self._calibrating():
            return choose_threads(
                asked,
                self._backend.set_threads,
                lambda: self._step(0),
                lambda: LinkLoad(source, num_experts, destinations, link.emulated_bytes_per_s),
            )

    def compute_floors(self, context_tok: int) -> tuple[tuple[int, float], ...]:
        """(tokens cached before the step, milliseconds of the quicker of two steps): on an empty cache and, where the
        cache's layers are our own, at the end of the longest context. Raises WaitCancelled."""
        with self._calibrating():
            floors = [self._floor(0)]
            if context_tok > 1:
                longest = self._floor(context_tok - 1)
                if longest[0] > 0:
                    floors.append(longest)
        return tuple(floors)

    def _floor(self, past_tok: int) -> tuple[int, float]:
        times = []
        for _ in range(_FLOOR_STEPS):
            assumed_tok, step_s = self._step(past_tok)
            times.append(step_s * 1000)
        return assumed_tok, min(times)

    def _step(self, past_tok: int) -> tuple[int, float]:
        """(tokens the cache was assumed to hold, seconds of the step)."""
        if self._state.is_cancelled():
            raise WaitCancelled("Stopped.")
        began_s = perf_counter()
        assumed_tok = self._backend.time_step(past_tok)
        return assumed_tok, perf_counter() - began_s

    @contextmanager
    def _calibrating(self) -> Iterator[None]:
        self._state.is_calibrating = True
        try:
            yield
        finally:
            self._state.is_calibrating = False
