"""Tensors that are no run of bytes in a file: made of what is stored as they are read.

gpt-oss (`GptOssExperts` in transformers): rows of gate and up alternate in one tensor. In MXFP4 a block's scale lies in
another tensor than its 32 values, and a byte holds two that follow each other, where ggml's block is the scale and 16
bytes with values i and i + 16. Only the scale is put beside the values here: a row of ggml's then has its columns in
another order within each block, so the input is brought into that order (`in_pairs`), and gate and up are read in the
order of rows that gives the down-projection its input. In other formats matrices lie transposed.

Checkpoints in FP8 (DeepSeek-V3, section 3.3.2): a scale for every block of a matrix lies in another tensor. ggml has no
such format: values are made BF16, as the library does where FP8 cannot be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.backends.ggml.float8 import write_bfloat16
from engine.backends.ggml.plain_values import to_float32
from engine.backends.ggml.stored_weight import (
    BLOCK_VALUES,
    BLOCKS,
    BLOCKS_IN_PAIRS,
    DECAY,
    FLOAT8,
    FLOATS,
    FLOATS_IN_PAIRS,
    ONE_MORE,
    ROWS,
    TURNED,
    Made,
    StoredWeight,
)
from engine.backends.ggml.tensor_types import F32
from engine.checkpoint.file_bytes import read_file

_BLOCK: Final = np.dtype([("scale", "u1"), ("values", "V16")])


def in_pairs(rows: np.ndarray) -> np.ndarray:
    """rows [n, dim]: within each 32 values the even ones first, then the odd ones. A copy."""
    return rows.reshape(len(rows), -1, BLOCK_VALUES // 2, 2).swapaxes(2, 3).reshape(rows.shape)


def takes_pairs(weight: StoredWeight) -> bool:
    """Whether this matrix's input must be `in_pairs`."""
    return weight.made is not None and weight.made.kind in (BLOCKS, BLOCKS_IN_PAIRS)


def write_made(weight: StoredWeight, parts: Sequence[np.ndarray], target: np.ndarray) -> None:
    """Writes the tensor to `target`, uint8 [weight.num_bytes]; `parts`: uint8, the bytes of its parts."""
    made = weight.made
    assert made is not None, "stored as it is"
    chosen = slice(made.first, None, made.step)
    if made.kind in (FLOATS, FLOATS_IN_PAIRS):
        floats = to_float32(parts[0], made.parts[0].type_id)[chosen]
        target.view(np.float32)[:] = _rows_in_pairs(floats).reshape(-1) if made.kind == FLOATS_IN_PAIRS else floats
    elif made.kind in (ONE_MORE, DECAY):
        values = to_float32(parts[0], made.parts[0].type_id)
        target.view(np.float32)[:] = values + 1 if made.kind == ONE_MORE else -np.exp(values)
    elif made.kind == FLOAT8:
        scales = to_float32(parts[1], made.parts[1].type_id).reshape(made.parts[1].shape[::-1])
        write_bfloat16(parts[0].reshape(weight.shape[::-1]), scales, made.block, target.view(np.uint16))
    elif made.kind == ROWS:
        rows = parts[0].reshape(made.parts[0].shape[1], -1)
        chosen_rows = [rows[first : first + count] for first, count in made.runs]
        np.concatenate(chosen_rows, out=target.reshape(-1, rows.shape[1]))
    elif made.kind == TURNED:
        num_out, num_in = made.parts[0].shape
        stored = parts[0].view(np.uint32 if made.parts[0].type_id == F32 else np.uint16).reshape(num_in, num_out)
        target.view(stored.dtype).reshape(-1, num_in)[...] = stored[:, chosen].T
    else:
        _, num_blocks, num_rows = made.parts[0].shape
        values = parts[0].view("V16").reshape(num_rows, num_blocks)[chosen]
        scales = parts[1].reshape(num_rows, num_blocks)[chosen]
        blocks: np.ndarray = target.view(_BLOCK).reshape(-1, num_blocks)
        if made.kind == BLOCKS_IN_PAIRS:
            values, scales = _rows_in_pairs(values), _rows_in_pairs(scales)
            blocks = blocks.reshape(-1, 2, BLOCK_VALUES // 2, num_blocks)
        blocks["scale"], blocks["values"] = scales, values


def _rows_in_pairs(rows: np.ndarray) -> np.ndarray:
    """A view [n / 32, 2, 16, ...] of rows [n, ...]."""
    return rows.reshape(-1, BLOCK_VALUES // 2, 2, *rows.shape[1:]).swapaxes(1, 2)


def stored_parts(weights: Sequence[StoredWeight]) -> list[StoredWeight]:
    """What is read for these tensors, each once: themselves, or what they are made of."""
    found: dict[tuple[str, int], StoredWeight] = {}
    for weight in weights:
        for part in (weight,) if weight.made is None else weight.made.parts:
            found.setdefault((part.path, part.file_offset), part)
    return list(found.values())


def read_whole(weight: StoredWeight) -> bytearray:
    """The tensor's bytes as they lie in a slot. Raises CheckpointError."""
    found = bytearray(weight.num_bytes)
    if weight.made is None:
        read_file(weight.path, weight.file_offset, memoryview(found))
    else:
        write_made(weight, read_parts(weight.made), np.frombuffer(found, np.uint8))
    return found


def read_parts(made: Made) -> list[np.ndarray]:
    """uint8: the bytes of what a tensor is made of. Raises CheckpointError."""
    return [np.frombuffer(read_whole(part), np.uint8) for part in made.parts]
