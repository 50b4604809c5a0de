"""A model's measured needs, without measuring where an earlier load of the same model has done it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import torch
import transformers

from engine.backends.transformers.memory_needs import MemoryNeeds
from engine.checkpoint.index import TensorEntry
from engine.plan.measured_needs import MeasuredNeeds, NeedsOfForward, keep_measured, read_measured

Measure = Callable[[], tuple[MemoryNeeds, tuple[int, ...]]]
"""Runs the model on shapes: what measures it further, and per MoE layer the experts chosen for a token."""


class KnownNeeds:
    """Of one model. `measure` is called once, when a number is asked for that was not kept."""

    def __init__(self, key: str, num_experts: Iterable[int], measure: Measure) -> None:
        """`num_experts`: of each MoE layer. Raises what `measure` raises."""
        self._key, self._measure = key, cache(measure)
        found = read_measured(key)
        limits = tuple(num_experts)
        if found is None or len(found.top_ks) != len(limits) or not all(map(_is_possible, found.top_ks, limits)):
            needs, top_ks = self._measure()
            found = MeasuredNeeds(top_ks, needs.uses_library_cache)
        self._found = found

    @property
    def top_ks(self) -> tuple[int, ...]:
        """Per MoE layer, the experts chosen for a token."""
        return self._found.top_ks

    @property
    def uses_library_cache(self) -> bool:
        """The model brings a KV cache class of its own."""
        return self._found.uses_library_cache

    def of_chunk(self, chunk_tok: int) -> NeedsOfForward:
        """By the length of prefill chunks. Raises what `measure` raises, and the library on shapes."""
        known = self._found.by_chunk_tok
        if chunk_tok not in known:
            needs, _ = self._measure()
            known[chunk_tok] = NeedsOfForward(needs.kv_of(chunk_tok), needs.live_of(chunk_tok))
            keep_measured(self._key, self._found)
        return known[chunk_tok]


def measuring_key(config: Mapping[str, object], entries: Iterable[TensorEntry]) -> str:
    """Of all that the numbers depend on: config.json, the tensors' names, types and shapes, the libraries, our code."""
    tensors = sorted([entry.key, str(entry.dtype), *entry.shape] for entry in entries)
    parts = [torch.__version__, transformers.__version__, _code_digest(), config, tensors]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _is_possible(top_k: int, num_experts: int) -> bool:
    return 0 < top_k <= num_experts


@cache
def _code_digest() -> str:
    """Of this folder, where the measuring and what is measured is written."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
