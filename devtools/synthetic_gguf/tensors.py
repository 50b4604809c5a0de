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
            yield from self._attention(layer) if self._shape.latent is None else self._latent_attention(layer)
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
        if shape.has_biases:
            for name, size in (("q", heads), ("k", kv_heads), ("v", kv_heads), ("output", shape.hidden)):
                yield _floats(f"{block}attn_{name}.bias", np.zeros(size, np.float32))
            yield _floats(f"{block}attn_sinks.weight", np.zeros(shape.num_heads, np.float32))

    def _latent_attention(self, layer: int) -> Iterator[Tensor]:
        shape, latent, block = self._shape, self._shape.latent, f"blk.{layer}."
        assert latent is not None, "asked for where there is one"
        heads, hidden = shape.num_heads, shape.hidden
        gain = (LAYERS_SHARE / shape.num_layers) ** 0.5 / _ATTENTION_SPREAD
        key_dim, compressed = latent.plain_dim + latent.rope_dim, latent.rank + latent.rope_dim
        yield _floats(f"{block}attn_norm.weight", np.ones(hidden, np.float32))
        yield self._matrix(f"{block}attn_q.weight", Role.ATTENTION, layer, heads * key_dim, hidden, gain=_SHARPNESS)
        yield self._matrix(f"{block}attn_kv_a_mqa.weight", Role.ATTENTION, layer, compressed, hidden)
        yield _floats(f"{block}attn_kv_a_norm.weight", np.ones(latent.rank, np.float32))
        # A key value is a sum over the compressed row: the transposed matrix has its rows along the other length.
        key_gain = (latent.plain_dim / latent.rank) ** 0.5
        yield self._matrix(
            f"{block}attn_k_b.weight", Role.ATTENTION, layer, latent.rank, latent.plain_dim, heads, key_gain
        )
        yield self._matrix(f"{block}attn_v_b.weight", Role.VALUE, layer, latent.value_dim, latent.rank, heads)
        yield self._matrix(
            f"{block}attn_output.weight", Role.ATTENTION, layer, hidden, heads * latent.value_dim, gain=gain
        )

    def _feed_forward(self, layer: int) -> Iterator[Tensor]:
        shape, block = self._shape, f"blk.{layer}."
        gain = (LAYERS_SHARE / shape.num_layers) ** 0.5 / _EXPERT_SPREAD
        norm = "ffn_norm" if shape.family in ("qwen3moe", "deepseek2") else "post_attention_norm"
        yield _floats(f"{block}{norm}.weight", np.ones(shape.hidden, np.float32))
        if layer < shape.num_dense:
            yield from self._network(layer, "", shape.dense_size, 1, (Role.SHARED, Role.SHARED_DOWN), gain)
            return
        yield _floats(f"{block}ffn_gate_inp.weight", router(self._seed, layer, shape.num_experts, shape.hidden))
        if shape.family == "glm4moe":
            yield _floats(f"{block}exp_probs_b.bias", np.zeros(shape.num_experts, np.float32))
        if shape.has_biases:
            yield _floats(f"{block}ffn_gate_inp.bias", np.zeros(shape.num_experts, np.float32))
            for name, size in (("gate", shape.expert_size), ("up", shape.expert_size), ("down", shape.hidden)):
                yield _floats(f"{block}ffn_{name}_exps.bias", np.zeros((shape.num_experts, size), np.float32))
        routed = Role.EXPERT, Role.EXPERT_DOWN
        yield from self._network(layer, "_exps", shape.expert_size, shape.num_experts, routed, gain)
        if shape.shared_size:
            yield from self._network(layer, "_shexp", shape.shared_size, 1, (Role.SHARED, Role.SHARED_DOWN), gain)

    def _network(
        self, layer: int, suffix: str, size: int, count: int, roles: tuple[Role, Role], gain: float
    ) -> Iterator[Tensor]:
        """Gate, up and down of one network, or of `count` experts."""
        hidden, block = self._shape.hidden, f"blk.{layer}."
        for name in ("gate", "up"):
            yield self._matrix(f"{block}ffn_{name}{suffix}.weight", roles[0], layer, size, hidden, count)
        yield self._matrix(f"{block}ffn_down{suffix}.weight", roles[1], layer, hidden, size, count, gain=gain)

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
