"""8-bit floats with a scale for every block of a matrix, made BF16.

E4M3 (OCP 8-bit floating point, section 5.3): sign, 4 bits of exponent with a bias of 7, 3 bits of fraction; of exponent
and fraction all ones are NaN.
"""

from __future__ import annotations

from typing import Final

import numpy as np

_ROWS_AT_ONCE: Final = 128


def _e4m3() -> np.ndarray:
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, (codes & 7) / 8
    sizes = np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * 2.0 ** (exponent - 7))
    sizes[codes & 127 == 127] = np.nan
    signed: np.ndarray = np.where(codes >> 7, -sizes, sizes).astype(np.float32)
    return signed


_VALUES: Final = _e4m3()
"""float32 [256], by code."""


def write_bfloat16(codes: np.ndarray, scales: np.ndarray, block: tuple[int, int], target: np.ndarray) -> None:
    """Writes codes [rows, columns] times their block's scale to `target`, uint16 [rows * columns], rounded to the
    nearest. scales: float32 [blocks of rows, blocks of columns]; blocks at the end may be smaller."""
    num_rows, num_columns = codes.shape
    block_rows, block_columns = block
    out, scales = target.reshape(num_rows, num_columns), np.where(np.isnan(scales), np.float32(np.nan), scales)
    for first in range(0, num_rows, _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, num_rows))
        by_row = scales[np.arange(rows.start, rows.stop) // block_rows]
        values = _VALUES.take(codes[rows], mode="clip")
        values *= by_row.repeat(block_columns, axis=1)[:, :num_columns]
        out[rows] = _rounded(values)


def _rounded(values: np.ndarray) -> np.ndarray:
    """float32 -> uint16: the nearest BF16, ties to even. Overwrites `values`."""
    bits = values.view(np.uint32)
    bits += 0x7FFF + (bits >> 16 & 1)
    upper: np.ndarray = (bits >> 16).astype(np.uint16)
    return upper
