"""The KV cache in one preallocated block of float16, in ggml's layout: a row of all heads for each token."""

from __future__ import annotations

from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.tensor_types import F16
from engine.backends.token_history import TokenHistory

PADDING_TOK = 256
"""Attention reads whole runs of so many rows; what is behind the last token is masked."""


def capacity_tok(context_tok: int) -> int:
    """Rows allocated for a context of so many tokens."""
    return -(-context_tok // PADDING_TOK) * PADDING_TOK


def bytes_per_tok(spec: ModelSpec) -> int:
    """Of all layers, keys and values."""
    return len(spec.layers) * 2 * spec.num_kv_heads * spec.head_dim * 2


class KvCache(TokenHistory):
    """`tokens` are the ids whose states it holds, in order; cropping is forgetting the last of them."""

    def __init__(self, ggml: Ggml, spec: ModelSpec, context_tok: int) -> None:
        """Allocates and touches the memory. Raises MemoryError."""
        super().__init__()
        self.capacity_tok = capacity_tok(context_tok)
        width = spec.num_kv_heads * spec.head_dim
        self._memory = Memory(len(spec.layers) * 2 * width * self.capacity_tok * 2)
        self._builder = GraphBuilder(ggml, 2 * len(spec.layers))
        self.layers: list[tuple[Tensor, Tensor]] = []
        """Per layer, keys and values: float16 [kv heads * dim, capacity]."""
        for _ in spec.layers:
            pair = [self._memory.take(width * self.capacity_tok * 2, 2)[0] for _ in range(2)]
            keys, values = (self._builder.new_at(address, F16, width, self.capacity_tok) for address in pair)
            self.layers.append((keys, values))

    def padded_tok(self, length_tok: int) -> int:
        """Rows that attention reads at a length."""
        return min(-(-length_tok // PADDING_TOK) * PADDING_TOK, self.capacity_tok)
