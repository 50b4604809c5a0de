"""The experts of a gpt-oss checkpoint, by GGUF's names: made of joint tensors as they are read (see `made_weights`)."""

from __future__ import annotations

import re
from typing import Final

from engine.backends.ggml.stored_weight import (
    BLOCK_VALUES,
    BLOCKS,
    BLOCKS_IN_PAIRS,
    FLOATS,
    FLOATS_IN_PAIRS,
    TURNED,
    Made,
    StoredWeight,
)
from engine.backends.ggml.tensor_types import F32, I8, MXFP4
from engine.errors import CheckpointError

_JOINT: Final = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj(_blocks|_scales|_bias)?")
_ROWS: Final = {"gate": (0, 2), "up": (1, 2), "down": (0, 1)}
"""Which rows of the joint tensor: the first, and every so manieth."""


def make_experts(weights: dict[str, StoredWeight]) -> None:
    """Replaces joint tensors by what is made of them. Raises CheckpointError."""
    joint = {name: weights.pop(name) for name in list(weights) if _JOINT.fullmatch(name)}
    for number in sorted({found[1] for name in joint if (found := _JOINT.fullmatch(name))}, key=int):
        own = f"model.layers.{number}.mlp.experts."
        is_packed = f"{own}down_proj_blocks" in joint
        for part, (first, step) in _ROWS.items():
            whole = f"{own}{'down' if part == 'down' else 'gate_up'}_proj"
            sources = [joint.get(whole + end) for end in (("_blocks", "_scales") if is_packed else ("",))]
            bias = joint.get(whole + "_bias")
            if bias is None or None in sources:
                raise CheckpointError(f"{whole} lacks tensors beside it.", "Fetch the checkpoint again.")
            name, is_row_order_free = f"blk.{number}.ffn_{part}_exps", part == "down"
            parts = tuple(source for source in sources if source is not None)
            kind = (BLOCKS if is_row_order_free else BLOCKS_IN_PAIRS) if is_packed else TURNED
            weights[name + ".weight"] = _matrix(name + ".weight", kind, parts, first, step)
            kind = FLOATS if is_row_order_free or not is_packed else FLOATS_IN_PAIRS
            weights[name + ".bias"] = _made(
                name + ".bias", kind, (bias,), first, step, F32, (bias.shape[0] // step, *bias.shape[1:]), 4
            )


def _matrix(name: str, kind: str, parts: tuple[StoredWeight, ...], first: int, step: int) -> StoredWeight:
    shape = parts[0].shape
    if kind == TURNED:
        if len(shape) != 3 or shape[0] % step:
            raise _wrong(parts[0])
        size = parts[0].num_bytes // (shape[0] * shape[1] * shape[2])
        return _made(name, kind, parts, first, step, parts[0].type_id, (shape[1], shape[0] // step, shape[2]), size)
    blocks, scales = parts
    fits = len(shape) == 4 and shape[0] == BLOCK_VALUES // 2 and scales.shape == shape[1:]
    if not fits or shape[2] % (step * BLOCK_VALUES if step > 1 else 1) or blocks.type_id != I8 != scales.type_id:
        raise _wrong(parts[0])
    held = (shape[1] * BLOCK_VALUES, shape[2] // step, shape[3])
    return _made(name, kind, parts, first, step, MXFP4, held, 17 / BLOCK_VALUES)


def _made(
    name: str,
    kind: str,
    parts: tuple[StoredWeight, ...],
    first: int,
    step: int,
    type_id: int,
    shape: tuple[int, ...],
    value_bytes: float,
) -> StoredWeight:
    count = 1
    for length in shape:
        count *= length
    made, source = Made(kind, parts, first, step), parts[0]
    return StoredWeight(name, type_id, shape, source.path, source.file_offset, int(count * value_bytes), made)


def _wrong(weight: StoredWeight) -> CheckpointError:
    return CheckpointError(f"{weight.name} has a shape that makes no sense.", "Fetch the checkpoint again.")
