"""A tiny checkpoint of the library as a GGUF file, as llama.cpp's converter would write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import StoredWeight
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.backends.ggml.weights import to_float32
from tests.gguf_files import QUANTS, add_key, tokenizer_keys

Array = NDArray[Any]

_TOKENIZER: Final = tokenizer_keys("qwen3moe")
VOCABULARY_TOK: Final = len(_TOKENIZER["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
_REORDERED: Final = ("llama", "granitemoe")
"""Families whose rows of queries and keys the converter reorders."""
_EXPERT: Final = re.compile(r"(blk\.\d+\.ffn_(?:gate|up|down))\.(\d+)\.weight")


def convert(
    folder: Path, path: Path, quant: str = "F32", keys: Mapping[str, object] | None = None, is_fused: bool = False
) -> Path:
    """Writes the float32 checkpoint in `folder` to `path`. `keys`: beside or in place of those of its config.json,
    without the architecture; None: left out. `is_fused`: an expert's gate and up become one tensor."""
    model = read_safetensors_model(folder)
    writer = gguf.GGUFWriter(path, model.family)
    for key, value in {**_numbers(model), **(keys or {})}.items():
        if value is not None:
            add_key(writer, f"{model.family}.{key}", value)
    for key, value in _TOKENIZER.items():
        add_key(writer, key, value)
    for name, values in (_fused if is_fused else dict)(_stacked(_tensors(model))).items():
        kind = QUANTS[quant][0] if values.ndim > 1 and ".ffn_gate_inp" not in name else Kind.F32
        stored = values if kind is Kind.F32 else gguf.quants.quantize(values, kind)
        writer.add_tensor(name, stored, raw_dtype=None if kind in (Kind.F32, Kind.F16) else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _numbers(model: StoredModel) -> dict[str, object]:
    """Numbers that have a word in GGUF."""
    kinds = [kind for kind in vars(gguf.Keys).values() if isinstance(kind, type)]
    known = {value for kind in kinds for value in vars(kind).values() if isinstance(value, str)}
    return {key: value for key, value in model.numbers.items() if "{arch}." + key in known}


def _tensors(model: StoredModel) -> Iterator[tuple[str, Array]]:
    heads = model.numbers["attention.head_count"], model.numbers.get("attention.head_count_kv")
    for weight in model.weights():
        values = _values(weight)
        found = re.search(r"attn_([qk])\.", weight.name)
        if found and model.family in _REORDERED:
            values = _reordered(values, int(heads["qk".index(found[1])]))  # type: ignore[call-overload]
        if weight.name.endswith("ffn_gate_inp_shexp.weight"):
            values = values.reshape(-1)
        yield (weight.name.removesuffix(".bias") if _is_hy_v3_correction(model, weight) else weight.name), values


def _is_hy_v3_correction(model: StoredModel, weight: StoredWeight) -> bool:
    return model.family == "hy_v3" and ".exp_probs_b." in weight.name


def _values(weight: StoredWeight) -> Array:
    raw = np.fromfile(weight.path, np.uint8, weight.num_bytes, offset=weight.file_offset)
    return to_float32(raw, weight.type_id).reshape(tuple(reversed(weight.shape)))


def _reordered(rows: Array, num_heads: int) -> Array:
    """Dimensions i and i + n/2 of a head become neighbours."""
    by_half = rows.reshape(num_heads, 2, len(rows) // num_heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(by_half.swapaxes(1, 2)).reshape(rows.shape)


def _stacked(tensors: Iterator[tuple[str, Array]]) -> dict[str, Array]:
    """With the experts of a layer in one tensor."""
    whole: dict[str, Array] = {}
    experts: dict[str, dict[int, Array]] = {}
    for name, values in tensors:
        if found := _EXPERT.fullmatch(name):
            experts.setdefault(f"{found[1]}_exps.weight", {})[int(found[2])] = values
        else:
            whole[name] = values
    return whole | {name: np.stack([each[number] for number in sorted(each)]) for name, each in experts.items()}


def _fused(tensors: dict[str, Array]) -> dict[str, Array]:
    """With gate and up of a layer's experts in one tensor, the gates' rows first."""
    left = dict(tensors)
    for name in [name for name in tensors if "ffn_gate_exps" in name]:
        pair = left.pop(name), left.pop(name.replace("gate", "up"))
        left[name.replace("gate", "gate_up")] = np.concatenate(pair, axis=1)
    return left
