"""Fixed memory for ggml tensors: allocated once, touched, page-aligned, seen by numpy and by ggml."""

from __future__ import annotations

from typing import Any

import numpy as np

PAGE_BYTES = 4096


class Memory:
    """Zeroed bytes. Freed with the last view of them."""

    def __init__(self, num_bytes: int) -> None:
        """Raises MemoryError."""
        raw = np.empty(num_bytes + PAGE_BYTES, dtype=np.uint8)
        start = -raw.ctypes.data % PAGE_BYTES
        self.bytes = raw[start : start + num_bytes]
        """uint8 [num_bytes]"""
        self.bytes[:] = 0
        self.address = int(self.bytes.ctypes.data)
        self._taken = 0

    @property
    def num_bytes(self) -> int:
        """As asked for."""
        return len(self.bytes)

    def take(self, num_bytes: int, alignment: int = 64) -> tuple[int, np.ndarray]:
        """The next free bytes of it: (address, view). Raises MemoryError when there are too few."""
        start = -(-self._taken // alignment) * alignment
        if start + num_bytes > len(self.bytes):
            raise MemoryError(f"{num_bytes} bytes do not fit into a block of {len(self.bytes)}")
        self._taken = start + num_bytes
        return self.address + start, self.bytes[start : start + num_bytes]


def values(memory: np.ndarray, dtype: Any, *shape: int) -> np.ndarray:
    """The bytes as an array of `shape`, the same memory."""
    viewed: np.ndarray = memory.view(dtype).reshape(shape)
    return viewed
