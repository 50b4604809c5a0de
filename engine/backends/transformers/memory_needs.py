"""What a forward takes beside the weights, measured on the meta device: the KV cache, and the workspace.

Two forwards of one prefill chunk are run without memory, one at the beginning of a context and one after some thousand
tokens; what grows between them grows with the context (scores and masks of attention, expanded keys and values).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from engine.backends.transformers.kv_cache import KvCache, sliding_capacity_tok
from engine.backends.transformers.live_bytes import LiveBytes
from engine.experts.formats.dense import DenseFormat
from engine.plan.measured_needs import NeedsOfForward
from engine.plan.model_plan import ChunkNeeds, GrowingBytes
from offload.geometry import Geometry

_PROBE_TOK = (4, 12)
_PAST_TOK = 2048
_MARGIN_BYTES = 48 << 20
"""For what torch and the tokenizer hold inside of operations, and for rounding by the allocator."""


class MemoryNeeds:
    """Measures a model on the meta device whose experts return zeros. Raises whatever the library raises on shapes."""

    def __init__(self, model: Any, context_tok: int) -> None:
        """`context_tok`: the model's own longest context."""
        self._model, self._context_tok = model, context_tok
        first = _cache_of(model, _PROBE_TOK[0])
        self.uses_library_cache = type(first) is not DynamicCache
        """The model brings a cache class of its own."""
        self._is_preallocated = not self.uses_library_cache and all(
            type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in first.layers
        )
        self._caches = (first, first if self._is_preallocated else _cache_of(model, _PROBE_TOK[1]))
        self.kv_of = cache(self._kv_of)
        """The KV cache, by chunk length."""
        self.live_of = cache(self._live_of)
        """Temporary tensors of a forward without routed experts, by chunk length."""

    def _kv_of(self, chunk_tok: int) -> GrowingBytes:
        growing, sliding = zip(*(_cache_bytes(found, chunk_tok) for found in self._caches), strict=True)
        if self._is_preallocated:
            return GrowingBytes(sliding[0], growing[0] // _PROBE_TOK[0])
        per_tok = -(-(growing[1] - growing[0]) // (_PROBE_TOK[1] - _PROBE_TOK[0]))
        return GrowingBytes(max(growing[0] - per_tok * _PROBE_TOK[0], 0) + sliding[0], per_tok)

    def _live_of(self, chunk_tok: int) -> GrowingBytes:
        chunk_tok = min(chunk_tok, self._context_tok)
        past_tok = min(_PAST_TOK, self._context_tok - chunk_tok)
        start_bytes = self._peak_bytes(chunk_tok, 0)
        if past_tok < 1:
            return GrowingBytes(start_bytes, 0)
        per_tok = max(-(-(self._peak_bytes(chunk_tok, past_tok) - start_bytes) // past_tok), 0)
        return GrowingBytes(max(start_bytes - per_tok * chunk_tok, 0), per_tok)

    def _peak_bytes(self, chunk_tok: int, past_tok: int) -> int:
        """Of a chunk's forward behind so many tokens."""
        kv = KvCache(self._model, past_tok + 2 * chunk_tok, chunk_tok, self.uses_library_cache)
        if self._is_preallocated:
            for layer, filled in zip(kv.cache.layers, self._caches[0].layers, strict=True):
                if filled.is_initialized:
                    layer.lazy_initialization(filled.keys, filled.values)
                layer.assume_length(past_tok)
        elif past_tok:
            kv.adopt(_forward(self._model, past_tok, kv.cache))
        live = LiveBytes()
        with live:
            _forward(self._model, chunk_tok, kv.cache)
        return live.peak_bytes


def chunk_needs(
    needs: NeedsOfForward, config: Any, formats: Sequence[DenseFormat], geometry: Geometry, chunk_tok: int
) -> ChunkNeeds:
    """The KV cache and the workspace for chunks of `chunk_tok` tokens. `config`: the text model's."""
    kv, live = needs
    fixed = live.fixed_bytes + _experts_bytes(config, formats, geometry, chunk_tok)
    logits = 24 * int(config.vocab_size)
    return ChunkNeeds(kv, GrowingBytes(fixed + logits + _MARGIN_BYTES, live.bytes_per_tok), live)


def _experts_bytes(config: Any, formats: Sequence[DenseFormat], geometry: Geometry, chunk_tok: int) -> int:
    """An upper estimate of what our experts' forward holds: every routed row's output, weighted and summed in fp32,
    and one expert's rows on their way through it, all tokens routed to it."""
    hidden = int(config.hidden_size)
    top_k = max(layer.top_k for layer in geometry.layers)
    widest = max(sum(math.prod(part.shape[:1]) for part in each.parameters) for each in formats)
    return chunk_tok * (12 * top_k * hidden + 4 * (2 * hidden + 2 * widest))


def _forward(model: Any, num_tok: int, cache: Any = None) -> Any:
    """The cache after a forward of `num_tok` tokens on the meta device."""
    ids = torch.zeros(1, num_tok, dtype=torch.long, device="meta")
    with torch.inference_mode():
        return model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).cache


def _cache_of(model: Any, num_tok: int) -> Any:
    return _forward(model, num_tok)


def _cache_bytes(cache: Any, chunk_tok: int) -> tuple[int, int]:
    """(bytes of growing layers at the probe's length, bytes of sliding layers at full size)."""
    growing = sliding = 0
    if type(cache) is not DynamicCache:
        growing = 2 * sum(_tensor_bytes(value) for value in vars(cache).values())
    for layer in getattr(cache, "layers", []):
        num_bytes = sum(_tensor_bytes(value) for value in vars(layer).values())
        if type(layer) is DynamicLayer:
            growing += num_bytes
        elif type(layer) is DynamicSlidingWindowLayer and layer.keys is not None:
            row_bytes = _tensor_bytes([layer.keys, layer.values]) // layer.keys.shape[-2]
            sliding += row_bytes * sliding_capacity_tok(layer.sliding_window, chunk_tok)
        else:
            growing += 2 * num_bytes  # the library concatenates: old and new live side by side
    return growing, sliding


def _tensor_bytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(_tensor_bytes(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_tensor_bytes(item) for item in value)
    return 0
