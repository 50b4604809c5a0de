"""Random matrices, quantised once: a matrix of the file is a window of a bank's rows.

Gate, up and down of one expert are windows at different places, so no two experts compute the same and no two slots
hold the same bytes, though quantising 30 billion weights would take an hour and a bank takes seconds.
"""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType

from devtools.synthetic_gguf.quantiser import Bytes, quantise

_SPARE_ROWS = 8192


class Banks:
    """Banks by type, number of columns and gain, made when first asked for."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._windows = np.random.default_rng([seed, 1])
        self._banks: dict[tuple[GGMLQuantizationType, int, float], Bytes] = {}

    def window(self, stored: GGMLQuantizationType, num_rows: int, num_columns: int, gain: float) -> memoryview:
        """The bytes of a random matrix: of inputs of variance 1 it makes outputs of standard deviation `gain`."""
        key = (stored, num_columns, gain)
        bank = self._banks.get(key)
        if bank is None or len(bank) < num_rows + _SPARE_ROWS:
            bank = self._banks[key] = self._made(stored, num_rows + _SPARE_ROWS, num_columns, gain)
        first = int(self._windows.integers(len(bank) - num_rows))
        return bank[first : first + num_rows].data.cast("B")

    def _made(self, stored: GGMLQuantizationType, num_rows: int, num_columns: int, gain: float) -> Bytes:
        rng = np.random.default_rng([self._seed, 2, int(stored), num_columns])
        values = rng.standard_normal((num_rows, num_columns), np.float32)
        return quantise(values * np.float32(gain / num_columns**0.5), stored)
