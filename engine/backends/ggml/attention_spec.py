"""What a family says of its attention: sizes, rotary embeddings, and which stored tensor plays which role."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from engine.backends.ggml.delta_spec import DeltaAttention
from engine.backends.ggml.stored_weight import StoredWeight, weights_of
from engine.backends.ggml.tensor_types import BF16, F16, F32, PLAIN_BYTES


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embeddings on the first `num_dims` values of a head, or on all of a part of it."""

    num_dims: int
    base: float
    is_interleaved: bool = False
    """Values 2i and 2i + 1 are a pair; else i and i + num_dims / 2."""
    divisors: tuple[float, ...] = ()
    """By pair: what its frequency is divided by. Empty: by 1."""
    magnitude: float = 1.0
    """What rotated values are multiplied by."""


@dataclass(frozen=True, slots=True)
class GroupedHeads:
    """Query heads that share key and value heads in groups, all of one size."""

    num_heads: int
    num_kv_heads: int
    dim: int
    scale: float
    """Of the products of queries and keys."""
    norms_after_rope: bool = False
    """Whether query and key norms follow the rotary embedding."""

    @property
    def kv_widths(self) -> tuple[int, ...]:
        """Values that a token has in each table of the KV cache: keys, values."""
        return (self.num_kv_heads * self.dim,) * 2

    @property
    def kv_blocks(self) -> tuple[int, ...]:
        """Runs of values in those tables that are read as one: a format's blocks must divide them."""
        return (self.dim,) * 2

    @property
    def widest_dim(self) -> int:
        """Values of the widest row that is multiplied with a weight."""
        return self.num_heads * self.dim


@dataclass(frozen=True, slots=True)
class LatentHeads:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): keys and values of all heads are made from one compressed
    row, so the cache keeps that row and a rotated key that all heads share."""

    num_heads: int
    rank: int
    """Values of the compressed row."""
    plain_dim: int
    """Of a query or key head, the values that are not rotated."""
    rope_dim: int
    value_dim: int
    scale: float
    norm_eps: float
    """Of the norms of compressed rows."""

    @property
    def kv_widths(self) -> tuple[int, ...]:
        """See GroupedHeads: the compressed row and the rotated key lie side by side."""
        return (self.rank + self.rope_dim,)

    @property
    def kv_blocks(self) -> tuple[int, ...]:
        """See GroupedHeads."""
        return self.rank, self.rope_dim

    @property
    def widest_dim(self) -> int:
        """See GroupedHeads."""
        return self.num_heads * max(self.rank + self.rope_dim, self.value_dim, self.plain_dim + self.rope_dim)


Heads = GroupedHeads | LatentHeads


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """One layer's tensors for `GroupedHeads`. None: the family has none there."""

    query: StoredWeight
    key: StoredWeight
    value: StoredWeight
    output: StoredWeight
    query_bias: StoredWeight | None = None
    key_bias: StoredWeight | None = None
    value_bias: StoredWeight | None = None
    output_bias: StoredWeight | None = None
    query_norm: StoredWeight | None = None
    """[dim]: of every head for itself; longer: of the whole projection."""
    key_norm: StoredWeight | None = None
    sinks: StoredWeight | None = None
    """One number a head that takes part in the softmax as the product with a key of no value."""
    is_windowed: bool = False
    """A token sees the last `window_tok` of the model alone."""
    is_gated: bool = False
    """`query` gives each head's query and then a gate, whose sigmoid scales what the head gives."""
    is_recurrent: ClassVar[bool] = False

    def stored(self) -> Iterator[StoredWeight]:
        """Every tensor."""
        return weights_of(self)


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Where the key part of a joint matrix `kv_b` lies: of each head, `plain_dim` rows of keys, then rows of values.
    It is held transposed: [plain_dim, rank, heads]."""

    joint: StoredWeight
    """[rank, heads * (plain_dim + value_dim)]"""
    held: StoredWeight
    """As it is in memory; its place in a file is not used."""

    @classmethod
    def of(cls, joint: StoredWeight, num_heads: int, plain_dim: int) -> KeyRows:
        """Of `joint` [rank, heads * (plain_dim + value_dim)]. A plain format is kept; of a quantised one the keys are
        held as float16."""
        type_id = joint.type_id if joint.type_id in (F32, F16, BF16) else F16
        shape = (plain_dim, joint.shape[0], num_heads)
        num_bytes = plain_dim * joint.shape[0] * num_heads * PLAIN_BYTES[type_id]
        held = joint._replace(name=joint.name + " (keys)", type_id=type_id, shape=shape, num_bytes=num_bytes)
        return cls(joint, held)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """One layer's tensors for `LatentHeads`. Queries are made by `query` alone, or by `query_down`, `query_norm` and
    `query`."""

    query: StoredWeight
    compress: StoredWeight
    """[hidden, rank + rope_dim]"""
    compress_norm: StoredWeight
    key_up: StoredWeight | KeyRows
    """[plain_dim, rank, heads], or rows of a joint matrix."""
    value_up: StoredWeight
    """[rank, value_dim, heads], or the same joint matrix."""
    output: StoredWeight
    query_down: StoredWeight | None = None
    query_norm: StoredWeight | None = None
    is_windowed: bool = False
    is_recurrent: ClassVar[bool] = False

    def stored(self) -> Iterator[StoredWeight]:
        """Every tensor, a joint matrix once."""
        return weights_of(self)


Attention = GroupedAttention | LatentAttention | DeltaAttention
