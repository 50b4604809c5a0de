"""Matrices of a checkpoint in FP8, each with a tensor of scales beside it.

`weight_scale_inv` (DeepSeek-V3, Qwen3-FP8): one scale for a block of `weight_block_size`. `weight_scale` (compressed
tensors): one for a row. Both are what the stored values are multiplied with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.backends.ggml.stored_weight import FLOAT8, Made, StoredWeight
from engine.backends.ggml.tensor_types import BF16, F16, F32, I8
from engine.checkpoint.stored_tensors import Placed
from engine.errors import CheckpointError, UnsupportedModelError

DTYPE: Final = "F8_E4M3"
_BY_BLOCK, _BY_ROW = "_scale_inv", "_scale"
_SCALES: Final = {"F32": F32, "F16": F16, "BF16": BF16}
_MAX_BLOCK: Final = 1 << 20


class Float8Matrices:
    """The FP8 matrices of a checkpoint, and the scales that belong to them."""

    def __init__(self, tensors: Sequence[Placed], config: Mapping[str, Any]) -> None:
        """`config`: of the folder. Raises CheckpointError."""
        by_key = {placed.tensor.key: placed for placed in tensors}
        keys = [key for key, placed in by_key.items() if placed.tensor.dtype == DTYPE]
        found = ((key, by_key.get(key + end)) for key in keys for end in (_BY_ROW, _BY_BLOCK))
        self._scales = {key: placed for key, placed in found if placed is not None}
        self.used_keys = frozenset(placed.tensor.key for placed in self._scales.values())
        """Of tensors that hold scales."""
        self._block = _block_size(config.get("quantization_config")) if self._scales else (1, 1)

    def weight(self, placed: Placed) -> StoredWeight:
        """A matrix under its own key, made BF16 as it is read. Raises UnsupportedModelError, CheckpointError."""
        path, tensor = placed
        scales = self._scales.get(tensor.key)
        if scales is None or scales.tensor.dtype not in _SCALES or len(tensor.shape) != 2:
            raise UnsupportedModelError(
                f"{path}: {tensor.key[:80]} is stored as {DTYPE} without scales that are known ({_BY_BLOCK[1:]}).",
                "Use its bf16 checkpoint, or a GGUF file.",
            )
        num_rows, num_columns = tensor.shape
        is_by_block = scales.tensor.key.endswith(_BY_BLOCK)
        block = self._block if is_by_block else (1, num_columns)
        grid = (-(-num_rows // block[0]), -(-num_columns // block[1]))
        if scales.tensor.shape != grid:
            raise CheckpointError(
                f"{scales.path}: {scales.tensor.key[:80]} has the shape {list(scales.tensor.shape)}, and its matrix"
                f" asks for {list(grid)}.",
                "Fetch the checkpoint again.",
            )
        shape = (num_columns, num_rows)
        values = StoredWeight(tensor.key, I8, shape, str(path), tensor.file_offset, tensor.num_bytes)
        by = StoredWeight(
            scales.tensor.key,
            _SCALES[scales.tensor.dtype],
            grid[::-1],
            str(scales.path),
            scales.tensor.file_offset,
            scales.tensor.num_bytes,
        )
        return values._replace(
            type_id=BF16, num_bytes=2 * tensor.num_bytes, made=Made(FLOAT8, (values, by), block=block)
        )


def _block_size(quantization: object) -> tuple[int, int]:
    """(rows, columns). Raises CheckpointError."""
    found = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
    if found is None:
        return 128, 128
    if isinstance(found, list) and len(found) == 2 and all(type(n) is int and 0 < n <= _MAX_BLOCK for n in found):
        return found[0], found[1]
    raise CheckpointError(f"weight_block_size is {str(found)[:40]!r}.", "Correct config.json.")
