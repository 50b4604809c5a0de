"""Tiny checkpoints whose matrices are FP8, as the published ones are, and the same weights as BF16 values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file

from tests.architectures.packed_checkpoint import save_both

BLOCK: Final = (40, 24)
"""Rows and columns: blocks at the end are smaller."""
_LARGEST: Final = 448.0
_PACKED: Final = re.compile(r"model\.layers\..+(_proj|_with_mqa)\.weight")


def pack_matrices(folder: Path, plain: Path, by_row: bool = False) -> None:
    """Replaces the layers' matrices in `folder` by FP8 with scales, and writes what these stand for to `plain`.
    `by_row`: a scale for every row, as compressed tensors have it."""
    file = folder / "model.safetensors"
    packed: dict[str, torch.Tensor] = {}
    unpacked: dict[str, torch.Tensor] = {}
    for name, weight in load_file(file).items():
        if not _PACKED.fullmatch(name):
            packed[name] = unpacked[name] = weight
            continue
        block = (1, weight.shape[1]) if by_row else BLOCK
        grid = torch.stack(
            [torch.stack([part.abs().max() for part in rows.split(block[1], 1)]) for rows in weight.split(block[0])]
        )
        scales = (grid / _LARGEST).to(torch.bfloat16 if by_row else torch.float32)
        spread = scales.float().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
        spread = spread[: weight.shape[0], : weight.shape[1]]
        codes = (weight / spread).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
        packed[name], packed[name + ("_scale" if by_row else "_scale_inv")] = codes, scales
        unpacked[name] = (codes.float() * spread).to(torch.bfloat16).float()
    method = "compressed-tensors" if by_row else "fp8"
    save_both(folder, plain, packed, unpacked, {"quant_method": method, "weight_block_size": list(BLOCK)})
