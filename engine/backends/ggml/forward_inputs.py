"""What a forward's attention is told of its tokens: positions, rows of the KV cache, and masks, at fixed addresses."""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.kv_cache import KvCache, SeenRows
from engine.backends.ggml.memory import Memory, values

_HIDDEN = np.float16(-np.inf)


class ForwardInputs:
    """For forwards of at most `num_tok` tokens."""

    def __init__(self, cache: KvCache, num_tok: int) -> None:
        """Allocates. Raises MemoryError."""
        self._cache = cache
        masks = 2 * num_tok * (cache.capacity_tok + cache.ring_tok)
        memory = self._memory = Memory(20 * num_tok + masks + 4096)
        self.positions_at, raw = memory.take(4 * num_tok)
        self._positions = values(raw, np.int32, num_tok)
        self.rows_at, raw = memory.take(8 * num_tok)
        self._rows = values(raw, np.int64, num_tok)
        self.mask_at, raw = memory.take(2 * num_tok * cache.capacity_tok)
        self._mask = values(raw, np.float16, num_tok * cache.capacity_tok)
        self.ring_rows_at, raw = memory.take(8 * num_tok)
        self._ring_rows = values(raw, np.int64, num_tok)
        self.ring_mask_at, raw = memory.take(2 * num_tok * cache.ring_tok)
        self._ring_mask = values(raw, np.float16, num_tok * cache.ring_tok)

    def write(self, position: int, count: int) -> SeenRows:
        """For `count` tokens from `position` on; returns the rows of the KV cache they see."""
        seen, cache = self._cache.seen_rows(position, count), self._cache
        cache.note_written(position + count)
        self._positions[:count] = self._rows[:count] = np.arange(position, position + count)
        mask = self._mask[: seen.full * count].reshape(count, seen.full)
        mask[:, :position] = 0
        mask[:, position:] = _HIDDEN
        mask[:, position : position + count][np.tri(count, dtype=bool)] = 0
        if seen.windowed:
            self._ring_rows[:count] = self._rows[:count] % cache.ring_tok
            self._write_ring_mask(position, count, seen)
        return seen

    def _write_ring_mask(self, position: int, count: int, seen: SeenRows) -> None:
        """A row holds the last position that leads to it. What it may still hold of positions behind, from before the
        cache was cropped, counts as the position a whole ring before, which no window reaches (see `holds_window`)."""
        ring, last = self._cache.ring_tok, position + count - 1
        held = last - (last - np.arange(seen.first, seen.first + seen.windowed)) % ring
        asked = np.arange(position, position + count)[:, None]
        sees = (held <= asked) & (held > asked - self._cache.window_tok) & (held >= 0)
        mask = self._ring_mask[: seen.windowed * count].reshape(count, seen.windowed)
        mask[...] = np.where(sees, np.float16(0), _HIDDEN)
