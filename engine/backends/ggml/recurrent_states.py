"""What recurrent layers remember, in one block of memory, and a copy of it at one earlier length.

Such a state cannot be cropped: it stands for all tokens before it. So it is copied within a prompt, shortly before its
end, where the next prompt of a chat usually still agrees, and `rewind` goes back to that, or to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from engine.backends.ggml.delta_graph import StateTensors
from engine.backends.ggml.delta_spec import DeltaHeads
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.memory import Memory
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.tensor_types import F32

KEPT_BEFORE_TOK: Final = 16
"""So far before a prompt's end its state is kept: a template closes a prompt with some tokens that it words otherwise
once there is an answer."""
_ALIGNMENT: Final = 64


def state_bytes(spec: ModelSpec) -> int:
    """Of both copies, all layers."""
    return 2 * len(spec.recurrent_layers) * _layer_bytes(spec)


def _layer_bytes(spec: ModelSpec) -> int:
    return 0 if spec.delta is None else sum(_part_bytes(spec.delta))


def _part_bytes(heads: DeltaHeads) -> tuple[int, int]:
    """Of what the convolution remembers, and of what the heads do."""
    sizes = (4 * heads.conv_values, 4 * heads.state_values)
    return sizes[0] + -sizes[0] % _ALIGNMENT, sizes[1] + -sizes[1] % _ALIGNMENT


def state_tensors(builder: GraphBuilder, heads: DeltaHeads, conv_at: int, state_at: int) -> StateTensors:
    """One layer's tensors at these addresses."""
    return StateTensors(
        builder.new_at(conv_at, F32, heads.conv_tok - 1, heads.mixed_dim),
        builder.new_at(state_at, F32, heads.dim, heads.dim, heads.num_value_heads),
    )


class RecurrentStates:
    """`length_tok`: the tokens that the states stand for; None: a forward was not finished."""

    def __init__(self, spec: ModelSpec) -> None:
        """Allocates and touches the memory. Raises MemoryError."""
        self._heads, self._numbers = spec.delta, spec.recurrent_layers
        self._layer_bytes = _layer_bytes(spec)
        self._live, self._kept = (Memory(len(self._numbers) * self._layer_bytes) for _ in range(2))
        self.length_tok: int | None = 0
        self._kept_tok: int | None = None
        self._start = self._keeps_behind = 0
        """Of the prompt that is being computed: where it begins, and behind how many of its tokens states are kept."""

    def tensors(self, builder: GraphBuilder) -> dict[int, StateTensors]:
        """By the number of their layer."""
        return dict(self._tensors(builder))

    def _tensors(self, builder: GraphBuilder) -> Iterator[tuple[int, StateTensors]]:
        if self._heads is None:
            return
        conv_bytes, _ = _part_bytes(self._heads)
        for place, number in enumerate(self._numbers):
            address = self._live.address + place * self._layer_bytes
            yield number, state_tensors(builder, self._heads, address, address + conv_bytes)

    # -- lengths ------------------------------------------------------------------------------------------------------

    def begin(self, length_tok: int) -> None:
        """A forward behind `length_tok` tokens changes the states from now on."""
        if self._numbers and self.length_tok != length_tok:
            raise ValueError(f"states of {self.length_tok} tokens are no states of {length_tok}")
        self.length_tok = None

    def begin_prompt(self, start: int, num_tok: int) -> int:
        """As `begin`, of a prompt's `num_tok` tokens from `start` on. Returns behind how many of them a chunk must end,
        so that `seen` is told of it for every layer; 0: anywhere."""
        self.begin(start)
        if not self._numbers:
            return 0
        before = num_tok - KEPT_BEFORE_TOK
        if before > 0:
            self._kept_tok, self._keeps_behind, self._start = None, before, start
            return before
        np.copyto(self._kept.bytes, self._live.bytes)
        self._kept_tok = start
        return 0

    def seen(self, layer: int, num_tok: int) -> None:
        """A layer is done with so many tokens of the prompt. Copies its state where it is to be kept."""
        if num_tok == self._keeps_behind and layer in self._numbers:
            start = self._numbers.index(layer) * self._layer_bytes
            place = slice(start, start + self._layer_bytes)
            np.copyto(self._kept.bytes[place], self._live.bytes[place])

    def finish(self, length_tok: int) -> None:
        """The forward is done, and the states stand for so many tokens."""
        self.length_tok = length_tok
        if self._keeps_behind:
            self._kept_tok, self._keeps_behind = self._start + self._keeps_behind, 0

    def rewind(self, length_tok: int) -> int:
        """Goes back to the longest state of at most `length_tok` tokens, and returns how many it stands for."""
        self._keeps_behind = 0
        if not self._numbers or self.length_tok == length_tok:
            return length_tok
        if self._kept_tok is None or self._kept_tok > length_tok:
            self.reset()
            return 0
        np.copyto(self._live.bytes, self._kept.bytes)
        self.length_tok = self._kept_tok
        return self._kept_tok

    def reset(self) -> None:
        """States of no tokens."""
        self._live.bytes[:] = 0
        self.length_tok, self._kept_tok, self._keeps_behind = 0, None, 0
