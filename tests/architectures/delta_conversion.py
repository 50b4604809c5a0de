"""What llama.cpp's converter does to the recurrent layers of a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.backends.ggml.families.stored_model import StoredModel

Array = NDArray[Any]

_VALUE_ROWS: Final = ("attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight", "ssm_a", "ssm_dt.bias")
_LAST_ROWS: Final = ("attn_qkv.weight", "ssm_conv1d.weight")


def split_joint(tensors: Iterator[tuple[str, Array]], model: StoredModel) -> Iterator[tuple[str, Array]]:
    """With queries, keys, values and gates of all heads apart, where a checkpoint has them key head by key head."""
    for name, values in tensors:
        if not name.endswith("ssm_in.weight"):
            yield name, values
            continue
        key_heads, value_heads, dim = _sizes(model)
        by_head = values.reshape(key_heads, -1, values.shape[-1])
        own = value_heads // key_heads * dim
        parts = np.split(by_head, [dim, 2 * dim, 2 * dim + own], axis=1)
        rows = [part.reshape(-1, values.shape[-1]) for part in parts]
        yield name.replace("ssm_in", "attn_qkv"), np.concatenate(rows[:3])
        yield name.replace("ssm_in", "attn_gate"), rows[3]


def tile_value_heads(tensors: Iterator[tuple[str, Array]], model: StoredModel) -> Iterator[tuple[str, Array]]:
    """With the value heads of a key head no longer behind each other, as files of qwen35moe have them."""
    key_heads, value_heads, dim = _sizes(model)
    for name, values in tensors:
        part = re.sub(r"blk\.\d+\.", "", name)
        if part in _VALUE_ROWS:
            yield name, _tiled(values, key_heads, value_heads)
        elif part in _LAST_ROWS:
            first = 2 * key_heads * dim
            yield name, np.concatenate([values[:first], _tiled(values[first:], key_heads, value_heads)])
        elif part == "ssm_out.weight":
            yield name, np.ascontiguousarray(_tiled(values.T, key_heads, value_heads).T)
        else:
            yield name, values


def _tiled(rows: Array, key_heads: int, value_heads: int) -> Array:
    by_head = rows.reshape(key_heads, value_heads // key_heads, -1, *rows.shape[1:])
    return np.ascontiguousarray(by_head.swapaxes(0, 1)).reshape(rows.shape)


def _sizes(model: StoredModel) -> tuple[int, int, int]:
    keys = ("ssm.group_count", "ssm.time_step_rank", "ssm.state_size")
    key_heads, value_heads, dim = (int(str(model.numbers[key])) for key in keys)
    return key_heads, value_heads, dim
