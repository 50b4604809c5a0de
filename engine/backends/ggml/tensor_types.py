"""The number formats of ggml that this back end names itself. All others pass through by number."""

from __future__ import annotations

from typing import Final

F32: Final = 0
F16: Final = 1
Q8_0: Final = 8
I8: Final = 24
I32: Final = 26
I64: Final = 27
BF16: Final = 30
MXFP4: Final = 39

K_QUANTS: Final = (10, 11, 12, 13, 14)
"""Q2_K to Q6_K: blocks of 256 values."""

PLAIN_BYTES: Final = {F32: 4, F16: 2, I32: 4, I64: 8, BF16: 2}
"""Bytes of one value, of the formats that are not made of blocks."""
