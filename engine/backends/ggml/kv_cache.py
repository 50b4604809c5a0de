"""The KV cache in one preallocated block, in ggml's layout: a row of all heads for each token.

A windowed layer keeps a ring of rows: the token at position p lies in row p modulo the ring. The ring holds the window,
a prefill chunk, and `KEPT_TOK` tokens more, so that a cache can be cropped behind the window. How far that goes follows
from the last position ever written since the cache was empty: what a ring held before it is overwritten. Recurrent
layers have no rows; what they keep is in `recurrent_states`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from engine.backends.ggml.graph import GraphBuilder, Tensor, row_bytes
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.recurrent_states import RecurrentStates, state_bytes
from engine.backends.ggml.tensor_types import F16, PLAIN_BYTES, Q8_0
from engine.backends.token_history import TokenHistory
from engine.errors import ConfigError
from engine.plan.model_plan import GrowingBytes

KV_TYPES: Final = {"f16": F16, "q8_0": Q8_0}
"""Formats by name, see `engine.config`."""
PADDING_TOK: Final = 256
"""Attention reads whole runs of so many rows; what a token may not see of them is masked."""
KEPT_TOK: Final = 1024
"""Tokens that a ring holds beside a window and a chunk: an answer of so many can be taken back."""


class SeenRows(NamedTuple):
    """Rows that a forward's attention reads."""

    full: int
    """Of a layer without a window: from the first on."""
    first: int
    """Of a windowed layer: the first."""
    windowed: int
    """Of a windowed layer: how many; 0: the model has no such layer."""


def capacity_tok(context_tok: int) -> int:
    """Rows allocated for a context of so many tokens."""
    return -(-context_tok // PADDING_TOK) * PADDING_TOK


def ring_tok(spec: ModelSpec, context_tok: int, chunk_tok: int) -> int:
    """Rows of a windowed layer; 0 where the model has none."""
    if not spec.window_tok:
        return 0
    return min(capacity_tok(spec.window_tok + chunk_tok + KEPT_TOK), capacity_tok(context_tok))


def require_whole_blocks(ggml: Ggml, spec: ModelSpec, type_id: int) -> None:
    """Raises ConfigError where heads are no whole blocks of the format."""
    block = int(ggml.blck_size(type_id))
    for length in spec.heads.kv_blocks:
        if length % block:
            raise ConfigError(
                f"The KV cache of this model has rows of {length} values, which are no whole blocks of {block}.",
                "Use --kv-type f16.",
            )


def kv_needs(ggml: Ggml, spec: ModelSpec, chunk_tok: int, type_id: int) -> GrowingBytes:
    """Bytes of the KV cache in the format `type_id`, by the context's length."""
    return _needs(spec, chunk_tok, _bytes_of_row(ggml, spec, type_id))


def float16_needs(spec: ModelSpec, chunk_tok: int) -> GrowingBytes:
    """As `kv_needs` in float16, without the library."""
    return _needs(spec, chunk_tok, PLAIN_BYTES[F16] * sum(spec.heads.kv_widths))


def _needs(spec: ModelSpec, chunk_tok: int, row: int) -> GrowingBytes:
    num_windowed = sum(layer.attention.is_windowed for layer in spec.layers)
    per_tok = row * (len(spec.layers) - num_windowed - len(spec.recurrent_layers))
    rings = row * num_windowed * ring_tok(spec, spec.context_tok, chunk_tok)
    return GrowingBytes(PADDING_TOK * per_tok + rings + state_bytes(spec), per_tok)


def _bytes_of_row(ggml: Ggml, spec: ModelSpec, type_id: int) -> int:
    """Of one token in one layer."""
    return sum(row_bytes(ggml, type_id, width) for width in spec.heads.kv_widths)


class KvCache(TokenHistory):
    """`tokens` are the ids whose states it holds, in order; cropping is forgetting the last of them."""

    def __init__(self, ggml: Ggml, spec: ModelSpec, context_tok: int, chunk_tok: int, type_id: int) -> None:
        """Allocates and touches the memory. `chunk_tok`: tokens written at once at most. Raises MemoryError."""
        super().__init__()
        self.capacity_tok, self.type_id = capacity_tok(context_tok), type_id
        self.window_tok, self.ring_tok = spec.window_tok, ring_tok(spec, context_tok, chunk_tok)
        self._written_tok = 0
        """One more than the last position written since the cache was empty."""
        rows = {
            number: self.ring_tok if layer.attention.is_windowed else self.capacity_tok
            for number, layer in enumerate(spec.layers)
            if not layer.attention.is_recurrent
        }
        self._memory = Memory(_bytes_of_row(ggml, spec, type_id) * sum(rows.values()))
        self._builder = GraphBuilder(ggml, 2 * len(spec.layers))
        self.states = RecurrentStates(spec)
        kept: dict[int, tuple[Tensor, ...]] = {**self.states.tensors(self._builder)}
        for number, count in rows.items():
            kept[number] = tuple(
                self._table(width, row_bytes(ggml, type_id, width), count) for width in spec.heads.kv_widths
            )
        self.layers = [kept[number] for number in range(len(spec.layers))]
        """Per layer its tables, [width, rows], where widths are `heads.kv_widths`; or `StateTensors`."""

    def _table(self, width: int, bytes_of_row: int, num_rows: int) -> Tensor:
        address, _ = self._memory.take(bytes_of_row * num_rows)
        return self._builder.new_at(address, self.type_id, width, num_rows)

    def seen_rows(self, position: int, count: int) -> SeenRows:
        """What attention of `count` tokens from `position` on reads. Of a ring: the runs that hold their windows, or
        all of it where these do not follow each other."""
        full = min(capacity_tok(position + count), self.capacity_tok)
        if not self.ring_tok:
            return SeenRows(full, 0, 0)
        runs = self.ring_tok // PADDING_TOK
        first, last = max(position - self.window_tok + 1, 0) // PADDING_TOK, (position + count - 1) // PADDING_TOK
        if first // runs != last // runs:
            return SeenRows(full, 0, self.ring_tok)
        return SeenRows(full, first % runs * PADDING_TOK, (last - first + 1) * PADDING_TOK)

    def note_written(self, end: int) -> None:
        """States up to position `end` - 1 are written, or about to be."""
        self._written_tok = max(self._written_tok, end)

    def holds_window(self, length_tok: int) -> bool:
        """Whether every windowed layer holds what a token behind the first `length_tok` looks at."""
        if not self.ring_tok:
            return True
        return max(length_tok - self.window_tok + 1, 0) >= self._written_tok - self.ring_tok

    @contextmanager
    def writing_one(self, position: int) -> Iterator[None]:
        """A token's states are written at `position`; where that fails, what was there before is kept as far as it
        can be."""
        self.states.begin(position)
        try:
            yield
        except BaseException:
            self.keep_prefix(position)
            raise
        self.states.finish(position + 1)

    def keep_prefix(self, length_tok: int) -> bool:
        """See TokenHistory."""
        kept_tok = self.states.rewind(length_tok)
        if not self.holds_window(kept_tok):
            self.reset()
            return length_tok == 0
        return super().keep_prefix(kept_tok) and (kept_tok > 0 or length_tok == 0)

    def reset(self) -> None:
        """See TokenHistory."""
        super().reset()
        self.states.reset()
        self._written_tok = 0
