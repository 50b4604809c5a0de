"""What a family says of recurrent layers: Gated DeltaNet behind a short causal convolution.

"Gated Delta Networks: Improving Mamba2 with Delta Rule" (Yang et al.), equation 10: of each value head a matrix is
remembered, which decays by alpha and is corrected by beta times what it gets wrong of the token's value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from engine.backends.ggml.stored_weight import StoredWeight, weights_of


@dataclass(frozen=True, slots=True)
class DeltaHeads:
    """Sizes of a model's recurrent layers. Keys and values have one length."""

    num_key_heads: int
    num_value_heads: int
    dim: int
    conv_tok: int
    """Tokens that the convolution sees, the token itself included."""
    is_tiled: bool
    """Value head h belongs to key head h % num_key_heads; else the heads of a key head follow each other."""

    @property
    def key_dim(self) -> int:
        """Values of all keys of a token, and of all queries."""
        return self.num_key_heads * self.dim

    @property
    def value_dim(self) -> int:
        """Of all values of a token."""
        return self.num_value_heads * self.dim

    @property
    def mixed_dim(self) -> int:
        """Of queries, keys and values side by side, which the convolution runs over."""
        return 2 * self.key_dim + self.value_dim

    @property
    def conv_values(self) -> int:
        """What the convolution remembers: [conv_tok - 1, mixed_dim]."""
        return (self.conv_tok - 1) * self.mixed_dim

    @property
    def state_values(self) -> int:
        """What the heads remember: [dim, dim, num_value_heads]."""
        return self.dim * self.dim * self.num_value_heads


@dataclass(frozen=True, slots=True)
class DeltaAttention:
    """One recurrent layer's tensors."""

    mixed: StoredWeight
    """[hidden, mixed_dim]: queries, keys, values."""
    gate: StoredWeight
    """[hidden, value_dim]: its silu scales the output."""
    beta: StoredWeight
    """[hidden, num_value_heads]"""
    alpha: StoredWeight
    """The same."""
    conv: StoredWeight
    """[conv_tok, mixed_dim], held as float32."""
    decay: StoredWeight
    """[num_value_heads]: a state decays by exp(decay * softplus(alpha + decay_bias))."""
    decay_bias: StoredWeight
    norm: StoredWeight
    """[dim]: of every head's output."""
    output: StoredWeight
    is_windowed: ClassVar[bool] = False
    is_recurrent: ClassVar[bool] = True

    def stored(self) -> Iterator[StoredWeight]:
        """Every tensor."""
        return weights_of(self)
