"""Model folders made of small files, to be damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from engine.checkpoint.shards import INDEX_FILE

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "hidden_size": 6,
    "moe_intermediate_size": 4,
    "vocab_size": 10,
}


def sound_shapes() -> dict[str, tuple[int, ...]]:
    """The tensors that CONFIG speaks of, as far as headers are compared with it."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (10, 6), "lm_head.weight": (10, 6)}
    for layer in range(2):
        shapes[f"model.layers.{layer}.self_attn.q_proj.weight"] = (6, 6)
        for expert in range(4):
            start = f"model.layers.{layer}.mlp.experts.{expert}"
            shapes |= {f"{start}.gate_proj.weight": (4, 6), f"{start}.up_proj.weight": (4, 6)}
            shapes[f"{start}.down_proj.weight"] = (6, 4)
    return shapes


def write_weights(path: Path, shapes: dict[str, tuple[int, ...]], num_cut_bytes: int = 0) -> Path:
    """A safetensors file of zeros in bf16."""
    header, end = {}, 0
    for key, shape in shapes.items():
        num_bytes = 2
        for size in shape:
            num_bytes *= size
        header[key] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + num_bytes]}
        end += num_bytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end - num_cut_bytes))
    return path


def write_model(folder: Path, *names: str) -> Path:
    """A folder with a configuration, a tokenizer, and sound weights under each of the names."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    for name in names:
        write_weights(folder / name, sound_shapes())
    return folder


def write_index(folder: Path, weight_map: object) -> None:
    """An index; a tuple of names puts a tensor into each."""
    if isinstance(weight_map, tuple):
        weight_map = {f"t{number}": name for number, name in enumerate(weight_map)}
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
