"""A graph that is built for one run."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.library import Ggml


def run_once(
    ggml: Ggml, compute: Compute, scratch: Scratch, max_tensors: int, build: Callable[[GraphBuilder], int]
) -> None:
    """Runs the graph, of at most `max_tensors`, that `build` returns; frees it afterwards. What lives within it is in
    `scratch`. Raises what `build` raises, WaitCancelled, MemoryError."""
    builder = GraphBuilder(ggml, max_tensors, 1, max_tensors)
    try:
        scratch.allocate(graph := build(builder))
        compute.run(graph)
    finally:
        builder.close()
