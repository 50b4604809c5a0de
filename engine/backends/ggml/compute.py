"""Runs graphs on ggml's CPU back end: one for all graphs of a model, from one thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

from engine.backends.ggml.library import AbortCallback, Ggml
from offload.errors import WaitCancelled

_DONE: Final = 0


class Compute:
    """The threads and work memory of graphs. Not thread-safe."""

    def __init__(self, ggml: Ggml, num_threads: int = 1) -> None:
        """Raises MemoryError."""
        self._ggml = ggml
        self._backend = ggml.backend_cpu_init()
        if not self._backend:
            raise MemoryError("ggml could not start its CPU back end")
        self._is_cancelled: Callable[[], bool] = lambda: False
        self._callback: Any = AbortCallback(lambda data: self._is_cancelled())
        self.computed_s = 0.0
        """Seconds spent in graphs, monotonic."""
        self.set_threads(num_threads)

    def set_threads(self, num_threads: int) -> None:
        """Of all graphs from now on."""
        self._ggml.backend_cpu_set_n_threads(self._backend, num_threads)
        self.num_threads = num_threads

    @contextmanager
    def stoppable(self, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Graphs that run meanwhile ask `is_cancelled` at every node; for long ones, since it costs microseconds."""
        self._is_cancelled = is_cancelled
        set_callback = self._ggml.backend_cpu_set_abort_callback
        set_callback(self._backend, ctypes.cast(self._callback, ctypes.c_void_p), None)
        try:
            yield
        finally:
            set_callback(self._backend, None, None)

    def run(self, graph: int) -> None:
        """Computes a graph whose tensors all have memory. Raises WaitCancelled when it was stopped, MemoryError."""
        began_s = perf_counter()
        status = self._ggml.backend_graph_compute(self._backend, graph)
        self.computed_s += perf_counter() - began_s
        if status == _DONE:
            return
        if self._is_cancelled():
            raise WaitCancelled("Stopped.")
        raise MemoryError(f"ggml could not compute a graph (status {status})")

    def close(self) -> None:
        """Frees the back end. Safe to call twice."""
        if self._backend:
            self._ggml.backend_free(self._backend)
            self._backend = None


class Scratch:
    """Memory for what lives within a graph, shared by graphs that run in turn; it grows, and never shrinks."""

    def __init__(self, ggml: Ggml) -> None:
        self._ggml = ggml
        self._allocator = ggml.gallocr_new(ggml.backend_cpu_buffer_type())

    def allocate(self, *graphs: int) -> None:
        """Gives every tensor of new graphs memory. Graphs given memory before must not be run afterwards. Raises
        MemoryError."""
        for graph in graphs:
            if not self._ggml.gallocr_reserve(self._allocator, graph):
                raise MemoryError("ggml could not allocate a graph's memory")
        for graph in graphs:
            if not self._ggml.gallocr_alloc_graph(self._allocator, graph):
                raise MemoryError("ggml could not allocate a graph's memory")

    @property
    def num_bytes(self) -> int:
        """Allocated now."""
        return int(self._ggml.gallocr_get_buffer_size(self._allocator, 0))

    def close(self) -> None:
        """Frees the memory. Safe to call twice."""
        if self._allocator:
            self._ggml.gallocr_free(self._allocator)
            self._allocator = None


def graph_bytes(ggml: Ggml, graph: int) -> int:
    """Bytes that a graph's own tensors will take; allocates none. Tensors with memory of their own are not counted."""
    allocator = ggml.gallocr_new(ggml.backend_cpu_buffer_type())
    size = (ctypes.c_size_t * 1)()
    ggml.gallocr_reserve_n_size(allocator, graph, None, None, size)
    ggml.gallocr_free(allocator)
    return int(size[0])
