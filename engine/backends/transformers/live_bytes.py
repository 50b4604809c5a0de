"""The peak of temporary tensors in a forward, found without memory: on the meta device, operation by operation."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FUSED_ATTENTION_BYTES = 8 << 20
"""What the processor's flash attention holds: a few blocks of scores a thread."""


class LiveBytes(TorchDispatchMode):
    """While active: `peak_bytes` is the most that new tensors held at one time. Use as a context around a forward.

    Memory inside of one operation is not seen, but for attention's: where the processor has no fused kernel for a shape
    (keys and values of different width, as in multi-head latent attention), scores are held in full, in fp32.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._live_bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner_bytes = 0
        if func is torch.ops.aten.scaled_dot_product_attention.default:
            query, key, value = args[:3]
            inner_bytes = _attention_bytes(query, key, value)
        for value in _tensors_in(args):
            self._known.add(value.untyped_storage()._cdata)  # a weight, or a cache: no new memory
        output = func(*args, **(kwargs or {}))
        for value in _tensors_in((output,)):
            self._note(value.untyped_storage())
        self.peak_bytes = max(self.peak_bytes, self._live_bytes + inner_bytes)
        return output

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        self._live_bytes += storage.nbytes()
        weakref.finalize(storage, self._free, key, storage.nbytes())

    def _free(self, key: int, num_bytes: int) -> None:
        self._known.discard(key)
        self._live_bytes -= num_bytes


def _tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Those of an operation's arguments or results: tensors, and lists of tensors."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(value)


def _attention_bytes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Bytes held inside of one attention over query [1, heads, tokens, dim], key and value [1, heads, keys, dim].

    Without a fused kernel: scores and their softmax, and query, keys and values in fp32, the first two scaled too.
    """
    if query.shape[-1] == value.shape[-1]:
        return _FUSED_ATTENTION_BYTES
    num_heads, num_tok = query.shape[1], query.shape[2]
    num_keys = key.shape[2]
    scores = 2 * num_heads * num_tok * num_keys
    widened = num_heads * (2 * (num_tok + num_keys) * query.shape[-1] + num_keys * value.shape[-1])
    return 4 * (scores + widened)
