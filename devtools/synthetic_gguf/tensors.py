"""The tensors of a file, in order: names, sizes and types first, contents made only while they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from gguf import GGMLQuantizationType

from devtools.synthetic_gguf.bank import Banks
from devtools.synthetic_gguf.precision import Role, stored_type
from devtools.synthetic_gguf.quantiser import Floats, quantise, row_bytes
from devtools.synthetic_gguf.routing import LAYERS_SHARE, Directions, router
from devtools.synthetic_gguf.shapes import Shape

_ATTENTION_SPREAD, _EXPERT_SPREAD = 0.9, 0.24
"""Standard deviation of what one layer's attention and experts add where their last matrix has a gain of 1."""
_SHARPNESS = 3.0
"""Standard deviation of attention's logits: a query looks at few keys, so that the next token depends on the whole
context. An average over all keys hardly differs from step to step, and the text would soon repeat itself."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file. `shape` is numpy's: the row length last."""

    name: str
    shape: tuple[int, ...]
    stored: GGMLQuantizationType
    contents: Callable[[], Iterator[memoryview]]
    """Makes its bytes, in pieces."""

    @property
    def num_bytes(self) -> int:
        num_rows = int(np.prod(self.shape[:-1], dtype=np.int64))
        return num_rows * row_bytes(self.stored, self.shape[-1])


class TensorPlan:
    """All tensors of a synthetic model."""

    def __init__(self, shape: Shape, mixture: str, num_tok: int, silent: frozenset[int], seed: int) -> None:
        self._shape, self._mixture, self._num_tok, self._seed = shape, mixture, num_tok, seed
        self._silent = silent
        self._banks = Banks(seed)
        self._directions = Directions(seed, num_tok, shape.hidden)

    def tensors(self) -> Iterator[Tensor]:
        """In the order of the file."""
        hidden = self._shape.hidden
        output_rows = partial(self._directions.output_rows, self._silent)
        yield self._rows("output.weight", Role.OUTPUT, output_rows)
        yield self._rows("token_embd.weight", Role.EMBEDDING, self._directions.embeddings)
        yield _floats("output_norm.weight", np.ones(hidden, np.float32))
        for layer in range(self._shape.num_layers):
            yield from self._attention(layer)
            yield from self._feed_forward(layer)

    def _attention(self, layer: int) -> Iterator[Tensor]:
        shape, block = self._shape, f"blk.{layer}."
        heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        gain = (LAYERS_SHARE / shape.num_layers) ** 0.5 / _ATTENTION_SPREAD
        yield _floats(f"{block}attn_norm.weight", np.ones(shape.hidden, np.float32))
        query_gain = 1.0 if shape.has_head_norms else _SHARPNESS
        yield self._matrix(f"{block}attn_q.weight", Role.ATTENTION, layer, heads, shape.hidden, gain=query_gain)
        yield self._matrix(f"{block}attn_k.weight", Role.ATTENTION, layer, kv_heads, shape.hidden)
        yield self._matrix(f"{block}attn_v.weight", Role.VALUE, layer, kv_heads, shape.hidden)
        yield self._matrix(f"{block}attn_output.weight", Role.ATTENTION, layer, shape.hidden, heads, gain=gain)
        if shape.has_head_norms:
            for name, length in (("attn_q_norm", _SHARPNESS), ("attn_k_norm", 1.0)):
                yield _floats(f"{block}{name}.weight", np.full(shape.head_dim, length, np.float32))

    def _feed_forward(self, layer: int) -> Iterator[Tensor]:
        shape, block = self._shape, f"blk.{layer}."
        gain = (LAYERS_SHARE / shape.num_layers) ** 0.5 / _EXPERT_SPREAD
        norm = "ffn_norm" if shape.family == "qwen3moe" else "post_attention_norm"
        yield _floats(f"{block}{norm}.weight", np.ones(shape.hidden, np.float32))
        yield _floats(f"{block}ffn_gate_inp.weight", router(self._seed, layer, shape.num_experts, shape.hidden))
        if shape.family == "glm4moe":
            yield _floats(f"{block}exp_probs_b.bias", np.zeros(shape.num_experts, np.float32))
        sizes = [("exps", shape.expert_size, shape.num_experts, Role.EXPERT, Role.EXPERT_DOWN)]
        if shape.shared_size:
            sizes.append(("shexp", shape.shared_size, 1, Role.SHARED, Role.SHARED_DOWN))
        for suffix, size, count, role, down_role in sizes:
            for name in ("gate", "up"):
                yield self._matrix(f"{block}ffn_{name}_{suffix}.weight", role, layer, size, shape.hidden, count)
            down = f"{block}ffn_down_{suffix}.weight"
            yield self._matrix(down, down_role, layer, shape.hidden, size, count, gain=gain)

    def _matrix(
        self, name: str, role: Role, layer: int, rows: int, columns: int, count: int = 1, gain: float = 1.0
    ) -> Tensor:
        """`count` random matrices in one tensor; a single one has two dimensions."""
        stored = stored_type(self._mixture, role, layer, self._shape.num_layers, columns)

        def contents() -> Iterator[memoryview]:
            for _ in range(count):
                yield self._banks.window(stored, rows, columns, gain)

        return Tensor(name, (rows, columns) if count == 1 else (count, rows, columns), stored, contents)

    def _rows(self, name: str, role: Role, pieces: Callable[[], Iterator[Floats]]) -> Tensor:
        """A matrix with a row for each token."""
        shape = self._shape
        stored = stored_type(self._mixture, role, 0, shape.num_layers, shape.hidden)

        def contents() -> Iterator[memoryview]:
            for piece in pieces():
                yield quantise(piece, stored).data.cast("B")

        return Tensor(name, (self._num_tok, shape.hidden), stored, contents)


def _floats(name: str, values: Floats) -> Tensor:
    """A tensor in F32, whatever the mixture."""
    return Tensor(name, values.shape, GGMLQuantizationType.F32, lambda: iter([values.data.cast("B")]))
