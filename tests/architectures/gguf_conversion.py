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
from engine.backends.ggml.made_weights import FLOATS, FLOATS_IN_PAIRS, read_whole
from engine.backends.ggml.model_spec import StoredWeight
from engine.backends.ggml.plain_values import to_float32
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.backends.ggml.tensor_types import MXFP4
from tests.architectures.delta_conversion import split_joint, tile_value_heads
from tests.architectures.packed_experts import ggml_blocks
from tests.gguf_files import QUANTS, add_key, tokenizer_keys

Array = NDArray[Any]

_TOKENIZER: Final = tokenizer_keys("qwen3moe")
VOCABULARY_TOK: Final = len(_TOKENIZER["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
_REORDERED: Final = ("llama", "granitemoe")
"""Families whose rows of queries and keys the converter reorders."""
_EXPERT: Final = re.compile(r"(blk\.\d+\.ffn_(?:gate|up|down))\.(\d+)\.weight")


def convert(
    folder: Path,
    path: Path,
    quant: str = "F32",
    keys: Mapping[str, object] | None = None,
    splits: bool = True,
    is_fused: bool = False,
) -> Path:
    """Writes the float32 checkpoint in `folder` to `path`. `keys`: beside or in place of those of its config.json,
    without the architecture; None: left out. `splits`: joint matrices of attention as newer files have them.
    `is_fused`: gate and up of an expert become one tensor."""
    model = read_safetensors_model(folder)
    writer = gguf.GGUFWriter(path, model.family)
    for key, value in {**_numbers(model), **_latent_keys(model, splits), **(keys or {})}.items():
        if value is not None:
            add_key(writer, f"{model.family}.{key}", value)
    for key, value in _TOKENIZER.items():
        add_key(writer, key, value)
    packed = {weight.name: _blocks(weight) for weight in model.weights() if weight.type_id == MXFP4}
    for name, blocks in packed.items():
        writer.add_tensor(name, blocks, raw_dtype=Kind.MXFP4)
    tensors = _split(_tensors(model), model if splits else None)
    if model.family == "qwen3next" and splits:
        tensors = split_joint(tensors, model)
    if model.family == "qwen35moe":
        tensors = tile_value_heads(tensors, model)
    whole = _stacked(tensors)
    for name, values in (_fused(whole) if is_fused else whole).items():
        kind = QUANTS[quant][0] if values.ndim > 1 and not _is_small(name) else Kind.F32
        stored = values if kind is Kind.F32 else gguf.quants.quantize(values, kind)
        writer.add_tensor(name, stored, raw_dtype=None if kind in (Kind.F32, Kind.F16) else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _is_small(name: str) -> bool:
    """Routers, biases and convolutions are float32 in every file."""
    return ".ffn_gate_inp" in name or ".ssm_conv1d" in name or name.endswith(".bias")


def _numbers(model: StoredModel) -> dict[str, object]:
    """Numbers that have a word in GGUF."""
    kinds = [kind for kind in vars(gguf.Keys).values() if isinstance(kind, type)]
    known = {value for kind in kinds for value in vars(kind).values() if isinstance(value, str)}
    return {key: value for key, value in model.numbers.items() if "{arch}." + key in known}


def _tensors(model: StoredModel) -> Iterator[tuple[str, Array]]:
    heads = model.numbers["attention.head_count"], model.numbers.get("attention.head_count_kv")
    for weight in model.weights():
        if weight.type_id == MXFP4:
            continue
        values = _values(weight)
        found = re.search(r"attn_([qk])\.", weight.name)
        if found and model.family in _REORDERED:
            values = _reordered(values, int(heads["qk".index(found[1])]))  # type: ignore[call-overload]
        if weight.name.endswith("ffn_gate_inp_shexp.weight"):
            values = values.reshape(-1)
        yield (weight.name.removesuffix(".bias") if _is_hy_v3_correction(model, weight) else weight.name), values


def _is_hy_v3_correction(model: StoredModel, weight: StoredWeight) -> bool:
    return model.family == "hy_v3" and ".exp_probs_b." in weight.name


def _latent_keys(model: StoredModel, splits: bool) -> dict[str, object]:
    """Compressed attention's lengths: in newer files it is one key head for all queries, in older ones the heads'."""
    numbers = model.numbers
    rank, rotated = numbers.get("attention.kv_lora_rank"), numbers.get("rope.dimension_count")
    if not isinstance(rank, int) or not isinstance(rotated, int):
        return {}
    if splits:
        return {"attention.head_count_kv": 1, "attention.key_length": rank + rotated, "attention.value_length": rank}
    own = {f"attention.{part}_length": numbers[f"attention.{part}_length_mla"] for part in ("key", "value")}
    return own | dict.fromkeys(("attention.key_length_mla", "attention.value_length_mla"))


def _split(tensors: Iterator[tuple[str, Array]], model: StoredModel | None) -> Iterator[tuple[str, Array]]:
    """With `attn_kv_b` taken apart: the keys' part transposed head by head, and the values'."""
    for name, values in tensors:
        if model is None or not name.endswith("attn_kv_b.weight"):
            yield name, values
            continue
        numbers = [model.numbers[f"attention.{key}"] for key in ("head_count", "key_length_mla", "value_length_mla")]
        heads, key_dim, value_dim = (int(str(number)) for number in numbers)
        plain_dim = key_dim - int(str(model.numbers["rope.dimension_count"]))
        by_head = values.reshape(heads, plain_dim + value_dim, -1)
        yield name.replace("kv_b", "k_b"), np.ascontiguousarray(by_head[:, :plain_dim].swapaxes(1, 2))
        yield name.replace("kv_b", "v_b"), np.ascontiguousarray(by_head[:, plain_dim:])


def _values(weight: StoredWeight) -> Array:
    if weight.made is not None and len(weight.shape) > 1:  # a stack
        kind = FLOATS if weight.made.kind == FLOATS_IN_PAIRS else weight.made.kind
        whole = weight._replace(made=weight.made._replace(kind=kind))
        parts = [whole.matrix(number) for number in range(weight.shape[-1])]
        return np.stack([_plain(part) for part in parts])
    return _plain(weight)


def _plain(weight: StoredWeight) -> Array:
    raw = np.frombuffer(read_whole(weight), np.uint8)
    return to_float32(raw, weight.type_id).reshape(tuple(reversed(weight.shape)))


def _blocks(weight: StoredWeight) -> Array:
    """MXFP4 experts of a checkpoint as GGUF stores them."""
    assert weight.made is not None
    values, scales = (
        np.frombuffer(read_whole(part), np.uint8).reshape(tuple(reversed(part.shape))) for part in weight.made.parts
    )
    rows = slice(weight.made.first, None, weight.made.step)
    return ggml_blocks(values[:, rows], scales[:, rows])


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
