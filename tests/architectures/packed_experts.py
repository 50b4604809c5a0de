"""Tiny gpt-oss checkpoints whose experts are MXFP4, as the published ones are, and the same weights in float32."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from tests.architectures.packed_checkpoint import save_both

_VALUES: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_EXPERTS: Final = re.compile(r"(.+\.mlp\.experts\.(?:gate_up|down)_proj)")


def pack_experts(folder: Path, plain: Path) -> None:
    """Replaces the float32 experts in `folder` by random blocks, and writes the weights that these stand for to
    `plain`."""
    file, random = folder / "model.safetensors", np.random.default_rng(0)
    packed: dict[str, torch.Tensor] = {}
    unpacked: dict[str, torch.Tensor] = {}
    for name, weight in load_file(file).items():
        if not _EXPERTS.fullmatch(name):
            packed[name] = unpacked[name] = weight
            continue
        experts, num_in, num_out = weight.shape
        blocks = random.integers(0, 256, (experts, num_out, num_in // 32, 16), dtype=np.uint8)
        scales = random.integers(122, 126, blocks.shape[:3], dtype=np.uint8)
        packed[f"{name}_blocks"], packed[f"{name}_scales"] = torch.from_numpy(blocks), torch.from_numpy(scales)
        unpacked[name] = torch.from_numpy(_floats(blocks, scales)).transpose(1, 2).contiguous()
    save_both(folder, plain, packed, unpacked, {"quant_method": "mxfp4"})


def _floats(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.float32]:
    """[experts, rows, columns]: a byte holds two values, the lower half first; a scale is an exponent of 2."""
    halves = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    signed = np.where(halves & 8, -1, 1) * _VALUES[halves & 7]
    scaled: NDArray[Any] = signed * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return scaled.reshape(*scales.shape[:2], -1).astype(np.float32)


def ggml_blocks(blocks: NDArray[np.uint8], scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """As GGUF stores them: the scale, then 16 bytes with values i and i + 16. [experts, rows, bytes]"""
    values = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    halves = values[..., :16] | values[..., 16:] << 4
    return np.concatenate([scales[..., None], halves], axis=-1).reshape(*scales.shape[:2], -1)
