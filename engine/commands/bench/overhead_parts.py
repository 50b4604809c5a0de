"""What the benches of a step's overhead share: steps of this engine and of plain transformers, inputs, rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.backend import TransformersBackend
from engine.backends.transformers.kv_cache import KvCache
from engine.commands.verify.layers import LayerCalls, RecordingCalls
from engine.commands.verify.whole_model import load_whole
from engine.config import SamplingConfig
from engine.sampling.sampler import Sampler
from offload.replay.trace_writer import TraceWriter

POLICY_LIMIT = 0.1
"""Cache, policies, prediction and counting, all on: at most this share of a step."""
STEPS_PER_ROUND = 4


def alternating(number: int, pairs: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """`pairs`, reversed in every second round, so that none is always first."""
    return pairs if number % 2 == 0 else list(reversed(pairs))


def make_resident(engine: OffloadedModel) -> None:
    """Fills every slot: all experts are resident before anything is timed."""
    for layer, geometry in enumerate(engine.loaded.plan.geometry.layers):
        for expert in range(geometry.num_experts):
            lease = engine.cache.claim_free(layer, expert)
            if lease is not None and lease.copy is not None:
                lease.copy.wait()
        engine.cache.release(layer)


def own_steps(engine: OffloadedModel, prompt: list[int]) -> Iterator[float]:
    """Yields the seconds of one decode step after the other, for ever."""
    sampler, geometry = Sampler(SamplingConfig(temperature=0.0)), engine.loaded.plan.geometry
    while True:
        engine.decoder.cache.reset()
        # every answer of a chat is recorded too
        engine.state.recorder = TraceWriter("", "", geometry, has_scores=False, has_predictions=False)
        tokens = engine.decoder.tokens(engine.decoder.prefill(prompt, lambda done_tok: None), sampler, 256)
        next(tokens)
        start = perf_counter()
        for _ in tokens:
            yield perf_counter() - start
            start = perf_counter()


class PlainTransformers:
    """Plain transformers over `model.forward`, with the same preallocated cache and the same greedy choice."""

    def __init__(self, engine: OffloadedModel) -> None:
        self.model = load_whole(engine)
        self._engine = engine

    def steps(self, prompt: list[int]) -> Iterator[float]:
        """Yields the seconds of one decode step after the other, for ever."""
        engine = self._engine
        budget = engine.budget
        backend = engine.backend
        uses_library_cache = not isinstance(backend, TransformersBackend) or backend.loaded.uses_library_cache
        kv = KvCache(self.model, budget.context_tok, budget.chunk_tok, uses_library_cache)
        while True:
            kv.reset()
            output = self._forward(prompt, kv)
            for _ in range(255):
                start = perf_counter()
                output = self._forward([int(output.logits[0, -1].argmax())], kv)
                yield perf_counter() - start

    def _forward(self, tokens: list[int], kv: KvCache) -> Any:
        with torch.inference_mode():
            output = self.model(input_ids=torch.tensor([tokens]), cache=kv.cache, use_cache=True, logits_to_keep=1)
        kv.adopt(output.cache)
        return output


def recorded_inputs(engine: OffloadedModel, prompt: list[int]) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """The inputs of every MoE layer in one decode step."""
    recorded = [LayerCalls() for _ in engine.layers]
    with RecordingCalls(engine, recorded), engine.state.watched(lambda layer: None):
        engine.greedy_ids(prompt, 2)
    return [layer.calls[-1][:3] for layer in recorded]


def row(median_s: float, deciles_s: Sequence[float]) -> str:
    low_ms, high_ms = deciles_s[0] * 1000, deciles_s[-1] * 1000
    return f"{median_s * 1000:8.3f} ms   ({low_ms:.3f} - {high_ms:.3f}, p10 - p90)"


def deciles(times: Sequence[float]) -> tuple[float, float]:
    """The first and the last decile."""
    found = statistics.quantiles([*times, *times], n=10)
    return found[0], found[-1]
