"""Values of the formats that are not made of blocks."""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.tensor_types import F16, F32


def to_float32(raw: np.ndarray, type_id: int) -> np.ndarray:
    """raw: uint8. Values of F32, F16 or BF16."""
    if type_id == F32:
        return raw.view(np.float32)
    if type_id == F16:
        return raw.view(np.float16).astype(np.float32)
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
