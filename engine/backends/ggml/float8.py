"""8-bit floats with a scale for every block of a matrix, made BF16.

E4M3 (OCP 8-bit floating point, section 5.3): sign, 4 bits of exponent with a bias of 7, 3 bits of fraction; of exponent
and fraction all ones are NaN.
"""

from __future__ import annotations

from typing import Final

import numpy as np


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
    out, tables = target.reshape(codes.shape), _rounded(scales[..., None] * _VALUES)
    for row, by_column in enumerate(tables):
        rows = slice(row * block[0], (row + 1) * block[0])
        for column, table in enumerate(by_column):
            place = rows, slice(column * block[1], (column + 1) * block[1])
            out[place] = table.take(codes[place], mode="clip")


def _rounded(values: np.ndarray) -> np.ndarray:
    """float32 -> uint16: the nearest BF16, ties to even; NaN is one of its own."""
    bits = values.view(np.uint32)
    upper: np.ndarray = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    upper[np.isnan(values)] = 0x7FC0
    return upper
