"""The KV cache: the library's cache object with its ordinary layers replaced by preallocated ones.

Full and sliding attention layers (MLA included: its compressed keys and values are ordinary tensors to a cache) write
into memory reserved once; the library's own grow by concatenation at every token. Other kinds (recurrent and
convolution states, indexed layers, caches of a model's own) keep the library's classes; `memory_needs` plans their
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from engine.backends.token_history import TokenHistory


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values of a full-attention layer, `[1, heads, capacity_tok, head_dim]`, allocated at first use."""

    is_sliding = False
    is_croppable = True

    def __init__(self, capacity_tok: int) -> None:
        super().__init__()
        self.capacity_tok = capacity_tok
        self.length_tok = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocates and touches the memory; shapes are known only from the first states."""
        self.keys = _reserve(key_states, self.capacity_tok)
        self.values = _reserve(value_states, self.capacity_tok)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends `[1, heads, tokens, head_dim]` states in place; returns views of everything cached."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        start, count = self.length_tok, key_states.shape[-2]
        end = start + count
        self.keys.narrow(2, start, count).copy_(key_states)
        self.values.narrow(2, start, count).copy_(value_states)
        self.length_tok = end
        return self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(key length, key offset) of the mask for the next `query_length` tokens."""
        return self.length_tok + query_length, 0

    def get_seq_length(self) -> int:
        return self.length_tok

    def get_max_length(self) -> int:
        """-1, as the library's growing layer says: masks are as long as what is cached, not as the reserve."""
        return -1

    def reset(self) -> None:
        """Forgets the tokens; the memory stays."""
        self.length_tok = 0

    def assume_length(self, length_tok: int) -> None:
        """Counts `length_tok` tokens as cached, whatever the memory holds: for measuring a forward at a length."""
        self.length_tok = length_tok

    def can_crop_to(self, length_tok: int) -> bool:
        """Whether the layer can be cropped to its first `length_tok` tokens."""
        return length_tok <= self.length_tok

    def crop_to(self, length_tok: int) -> None:
        self.length_tok = length_tok


class PreallocatedSlidingLayer(PreallocatedLayer):
    """Keys and values of a sliding-window layer: room for the window twice and a chunk, shifted when it is full.

    Returns what the library's sliding layer returns: the last `window - 1` cached tokens and the new ones.
    """

    is_sliding = True

    def __init__(self, window_tok: int, capacity_tok: int) -> None:
        super().__init__(capacity_tok)
        self.sliding_window = window_tok
        self.held_tok = 0
        """Tokens in memory, the last of `length_tok`."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends states `[1, heads, tokens, head_dim]`; returns views of the window before them, and them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        count = key_states.shape[-2]
        if self.held_tok + count > self.capacity_tok:
            self._shift()
        start = self.held_tok
        self.keys.narrow(2, start, count).copy_(key_states)
        self.values.narrow(2, start, count).copy_(value_states)
        self.held_tok += count
        self.length_tok += count
        visible = min(start, self.sliding_window - 1) + count
        first = self.held_tok - visible
        return self.keys.narrow(2, first, visible), self.values.narrow(2, first, visible)

    def _shift(self) -> None:
        assert self.keys is not None
        assert self.values is not None
        keep = min(self.held_tok, self.sliding_window - 1)
        first = self.held_tok - keep
        for memory in (self.keys, self.values):
            memory.narrow(2, 0, keep).copy_(memory.narrow(2, first, keep).clone())
        self.held_tok = keep

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(key length, key offset), as the library's sliding layer gives them."""
        offset = max(self.length_tok - self.sliding_window + 1, 0)
        return self.length_tok - offset + query_length, offset

    def get_max_length(self) -> int:
        return self.sliding_window

    def reset(self) -> None:
        super().reset()
        self.held_tok = 0

    def assume_length(self, length_tok: int) -> None:
        """See PreallocatedLayer."""
        self.length_tok, self.held_tok = length_tok, min(length_tok, self.sliding_window - 1)

    def can_crop_to(self, length_tok: int) -> bool:
        """Whether a full window before `length_tok` is still held."""
        first_held = self.length_tok - self.held_tok
        return length_tok <= self.length_tok and max(length_tok - self.sliding_window + 1, 0) >= first_held

    def crop_to(self, length_tok: int) -> None:
        self.held_tok -= self.length_tok - length_tok
        self.length_tok = length_tok


def _reserve(states: torch.Tensor, capacity_tok: int) -> torch.Tensor:
    shape = (*states.shape[:2], capacity_tok, states.shape[3])
    return torch.zeros(shape, dtype=states.dtype, device=states.device).fill_(0)


def sliding_capacity_tok(window_tok: int, chunk_tok: int) -> int:
    """Tokens a sliding layer has room for: the window twice, and a chunk."""
    return 2 * window_tok + chunk_tok


class KvCache(TokenHistory):
    """The cache of one conversation. `tokens` are the ids whose states it holds, in order."""

    def __init__(self, model: Any, context_tok: int, chunk_tok: int, uses_library_cache: bool) -> None:
        super().__init__()
        self._config, self._context_tok, self._chunk_tok = model.config, context_tok, chunk_tok
        self._uses_library_cache = uses_library_cache
        self.cache: Any = None if uses_library_cache else self._build()

    def _build(self) -> DynamicCache:
        cache = DynamicCache(config=self._config)
        make: dict[type, Callable[[Any], CacheLayerMixin]] = {
            DynamicLayer: lambda layer: PreallocatedLayer(self._context_tok),
            DynamicSlidingWindowLayer: lambda layer: PreallocatedSlidingLayer(
                layer.sliding_window, sliding_capacity_tok(layer.sliding_window, self._chunk_tok)
            ),
        }
        cache.layers = [make.get(type(layer), lambda layer: layer)(layer) for layer in cache.layers]
        return cache

    def adopt(self, cache: Any) -> None:
        """Keeps the cache object a forward returned (models that bring their own)."""
        self.cache = cache

    def assume_length(self, length_tok: int) -> int:
        """Counts `length_tok` tokens as cached, for measuring a forward; returns how many. Returns 0 and changes
        nothing if some layers are the library's own. End with `reset`."""
        layers = getattr(self.cache, "layers", [])
        if not layers or not all(isinstance(layer, PreallocatedLayer) for layer in layers):
            return 0
        for layer in layers:
            layer.assume_length(length_tok)
        return length_tok

    def keep_prefix(self, length_tok: int) -> bool:
        """Keeps the first `length_tok` tokens' states. False: not possible, and the cache was emptied."""
        if length_tok == len(self.tokens):
            return True
        return self.restore(length_tok)

    def restore(self, length_tok: int) -> bool:
        """Crops every layer to `length_tok`, also when an interrupted forward left them of unequal length. As
        `keep_prefix`."""
        if length_tok > 0 and self._can_crop_to(length_tok):
            for layer in self._layers():
                layer.crop_to(length_tok)
            return super().keep_prefix(length_tok)
        self.reset()
        return length_tok == 0

    def _layers(self) -> list[PreallocatedLayer]:
        return [layer for layer in self.cache.layers if layer.is_initialized]

    def _can_crop_to(self, length_tok: int) -> bool:
        if self.cache is None or not all(
            isinstance(layer, PreallocatedLayer) for layer in getattr(self.cache, "layers", ())
        ):
            return False
        return hasattr(self.cache, "layers") and all(layer.can_crop_to(length_tok) for layer in self._layers())

    def reset(self) -> None:
        """Empties the cache; preallocated memory is kept and reused."""
        super().reset()
        if self._uses_library_cache:
            self.cache = None
            return
        fresh = DynamicCache(config=self._config).layers
        for number, layer in enumerate(self.cache.layers):
            if isinstance(layer, PreallocatedLayer):
                layer.reset()
            else:
                self.cache.layers[number] = fresh[number]
