"""A checkpoint whose weights are packed, and beside it the same weights unpacked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file


def save_both(
    folder: Path,
    plain: Path,
    packed: dict[str, torch.Tensor],
    unpacked: dict[str, torch.Tensor],
    quantization: Mapping[str, object],
) -> None:
    """Replaces the weights in `folder` by packed ones, with a config.json that says so, and writes the folder as it was
    with the unpacked ones to `plain`."""
    file = folder / "model.safetensors"
    save_file(packed, file, {"format": "pt"})
    plain.mkdir()
    for each in folder.iterdir():
        if each != file:
            (plain / each.name).write_bytes(each.read_bytes())
    save_file(unpacked, plain / file.name, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = dict(quantization)
    (folder / "config.json").write_text(json.dumps(config))
