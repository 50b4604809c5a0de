"""The routers that a model's files hold, in a form that does not depend on how they are stored. Light: no torch.

A router is told by its name, and by its shape of [experts, hidden]: `gate` or `router` within a layer, as the model
library's architectures have it, or `ffn_gate_inp` in GGUF. What is added to its logits or scores belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from engine.checkpoint.config_file import NUM_EXPERTS, largest_number, read_config_file, text_part
from engine.checkpoint.file_bytes import read_file
from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.stored_tensors import Placed

WEIGHT, BIAS, CORRECTION = "weight", "bias", "correction"
_NUM_SAMPLED = 1024
_VALUE_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2}
"""Formats whose values are compared as float32; of others, the bytes are."""
_OTHER_SAMPLE_BYTES = 4096
_LAYER: Final = re.compile(r"(?:.*\.)?layers\.(\d+)\.(.+)")
_WEIGHT_NAME: Final = re.compile(r"(?:.*\.)?(?:gate|router)(?:\.[a-z_]+)?\.weight")
_BIAS_NAME: Final = re.compile(r"(?:.*\.)?(?:gate|router)(?:\.[a-z_]+)?\.bias")
_CORRECTION_NAME: Final = re.compile(r"(?:.*\.)?(?:e_score_correction_bias|expert_bias)")
_GGUF_NAME: Final = re.compile(r"blk\.(\d+)\.(ffn_gate_inp\.weight|ffn_gate_inp\.bias|exp_probs_b(?:\.bias)?)")
_GGUF_PARTS: Final = {"ffn_gate_inp.weight": WEIGHT, "ffn_gate_inp.bias": BIAS}


class StoredRouter(NamedTuple):
    """One tensor of a layer's router. `shape` is [experts, hidden], or [experts] of a bias."""

    layer: int
    part: str
    shape: tuple[int, ...]
    type_name: str
    path: str
    file_offset: int
    num_bytes: int

    def sample(self) -> bytes:
        """Values from the middle of it, as float32 where the format is a plain one. Raises CheckpointError."""
        value_bytes = _VALUE_BYTES.get(self.type_name)
        if value_bytes is None:
            count = min(_OTHER_SAMPLE_BYTES, self.num_bytes)
            return self.type_name.encode() + self._read((self.num_bytes - count) // 2, count).tobytes()
        num_values = self.num_bytes // value_bytes
        count = min(_NUM_SAMPLED, num_values)
        raw = self._read((num_values - count) // 2 * value_bytes, count * value_bytes)
        if self.type_name == "BF16":
            return (raw.view(np.uint16).astype(np.uint32) << 16).tobytes()
        return raw.view(np.float16 if self.type_name == "F16" else np.float32).astype(np.float32).tobytes()

    def _read(self, start: int, count: int) -> np.ndarray:
        raw = np.empty(count, dtype=np.uint8)
        if count:
            read_file(self.path, self.file_offset + start, memoryview(raw))  # type: ignore[arg-type]  # stubs: 3.12 on
        return raw


def routers_of_folder(folder: Path, tensors: Mapping[str, Placed]) -> list[StoredRouter]:
    """Of a checkpoint's own layers, those for drafting tokens left out; in order. Empty: none is known by its name.
    Raises CheckpointError."""
    config = text_part(read_config_file(folder))
    num_layers, num_experts = largest_number(config, ("num_hidden_layers",)), largest_number(config, NUM_EXPERTS)
    found = []
    for key, (path, tensor) in tensors.items():
        layer = _LAYER.fullmatch(key)
        if layer is None:
            continue
        part = _part_of(layer[2], tensor.shape)
        if part and num_experts in (None, tensor.shape[0]):
            where = (tensor.dtype, str(path), tensor.file_offset, tensor.num_bytes)
            found.append(StoredRouter(int(layer[1]), part, tensor.shape, *where))
    return _in_order(found, num_layers)


def _part_of(name: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 2 and shape[0] > 1 and _WEIGHT_NAME.fullmatch(name):
        return WEIGHT
    if len(shape) != 1:
        return ""
    return BIAS if _BIAS_NAME.fullmatch(name) else CORRECTION if _CORRECTION_NAME.fullmatch(name) else ""


def routers_of_gguf(file: GgufFile) -> list[StoredRouter]:
    """As `routers_of_folder`, of a GGUF file."""
    keys = file.metadata
    num_layers = keys.get(f"{file.architecture}.block_count")
    num_drafting = keys.get(f"{file.architecture}.nextn_predict_layers", 0)
    found = []
    for name, tensor in file.tensors.items():
        matched = _GGUF_NAME.fullmatch(name)
        if matched is not None:
            part, shape = _GGUF_PARTS.get(matched[2], CORRECTION), tuple(reversed(tensor.shape))
            where = (tensor.type_name, str(tensor.path), tensor.file_offset, tensor.num_bytes)
            found.append(StoredRouter(int(matched[1]), part, shape, *where))
    if isinstance(num_layers, int) and isinstance(num_drafting, int):
        return _in_order(found, num_layers - num_drafting)
    return _in_order(found, None)


def _in_order(found: Iterable[StoredRouter], num_layers: int | None) -> list[StoredRouter]:
    kept = [router for router in found if num_layers is None or router.layer < num_layers]
    return sorted(kept) if any(router.part == WEIGHT for router in kept) else []
