"""A model's config.json, checked before any library sees it. Light: no torch.

The library builds lists, tables and modules from these numbers before anything is planned: a billion labels, or as many
layers, would be allocated first and refused later. So whatever the engine or the library counts with has a type and a
range here. Keys that are not named here are left as they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.checkpoint.json_file import SETTINGS, read_json_object
from engine.errors import CheckpointError
from offload.bounded_json import kind_of, shown

CONFIG_FILE: Final = "config.json"
_HINT: Final = "Fetch config.json again, or correct the value by hand."

NUM_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""The keys under which architectures keep the number of routed experts a layer."""
TOP_K: Final = (
    "num_experts_per_tok",
    "moe_topk",
    "moe_k",
    "top_k_experts",
    "num_experts_per_token",
    "moe_top_k",
)
"""The keys for the number of experts that a token is given to."""
MAX_LAYERS: Final = 1000
MAX_EXPERTS: Final = 4096


class _Range(NamedTuple):
    low: int
    high: int
    may_be_list: bool = False
    """Some architectures give one number a layer."""


_WHOLE_NUMBERS: Final[dict[str, _Range]] = {
    "num_hidden_layers": _Range(1, MAX_LAYERS),
    "n_layer": _Range(1, MAX_LAYERS),
    "num_nextn_predict_layers": _Range(0, MAX_LAYERS),
    "vocab_size": _Range(1, 1 << 24),
    "hidden_size": _Range(1, 1 << 20),
    "intermediate_size": _Range(0, 1 << 24, may_be_list=True),
    "moe_intermediate_size": _Range(0, 1 << 24, may_be_list=True),
    "num_attention_heads": _Range(1, 1 << 16, may_be_list=True),
    "num_key_value_heads": _Range(0, 1 << 16, may_be_list=True),
    "head_dim": _Range(1, 1 << 16),
    "max_position_embeddings": _Range(1, 1 << 31),
    "num_labels": _Range(0, 100_000),
    **dict.fromkeys(NUM_EXPERTS, _Range(0, MAX_EXPERTS, may_be_list=True)),
    **dict.fromkeys(TOP_K, _Range(0, MAX_EXPERTS, may_be_list=True)),
}
_COUNTED = re.compile(r"(num|n)_[a-z0-9_]+|[a-z0-9_]+_(size|dim|rank|heads|layers|experts|interval|period|pattern)")
"""Keys that count something, as they are usually named: whole numbers of them are bounded too."""
_MAX_COUNT = 1 << 31
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "model_type": (str,),
    "architectures": (list,),
    "torch_dtype": (str, dict),
    "dtype": (str, dict),
    "hidden_act": (str,),
    "layer_types": (list,),
    "layers_block_type": (list,),
    "mlp_layer_types": (list,),
    "rope_parameters": (dict,),
    "rope_scaling": (dict,),
    "rope_theta": (int, float, list),
    "rms_norm_eps": (int, float),
    "layer_norm_eps": (int, float),
    "initializer_range": (int, float),
    "attention_dropout": (int, float),
    "id2label": (dict,),
    "label2id": (dict,),
    "tie_word_embeddings": (bool,),
    "use_cache": (bool,),
    "quantization_config": (dict,),
    "text_config": (dict,),
    "auto_map": (dict,),
    "transformers_version": (str,),
    "bos_token_id": (int, list),
    "eos_token_id": (int, list),
    "pad_token_id": (int,),
}
"""What a value must be; null is always allowed."""
_MAX_KEYS = 2000
_MAX_ITEMS = 100_000
_MAX_TEXT = 1000


def read_config_file(folder: Path) -> dict[str, Any]:
    """The checked content of a folder's config.json. Raises CheckpointError, which names file and key."""
    path = folder / CONFIG_FILE
    config = read_json_object(path, SETTINGS)
    problem = config_problem(config)
    if problem:
        raise CheckpointError(f"{path}: {problem}.", _HINT)
    return config


def config_problem(config: Mapping[str, Any]) -> str:
    """What is wrong with the values of a configuration, and under which key; empty: nothing that could be told."""
    if not config.get("model_type"):
        return "it does not name its model type (model_type)"
    for name, part in _parts(config):
        if len(part) > _MAX_KEYS:
            return f"{name[:-1] or 'it'} has {len(part)} keys, where at most {_MAX_KEYS} are read"
        for key, value in part.items():
            if value is not None and (problem := _value_problem(key, value)):
                return f"{name}{shown(key) if len(key) > 60 else key} {problem}"
        if problem := _relation_problem(part):
            return f"{name}{problem}"
    return ""


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model: `text_config`, or all of it."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def largest_number(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """The whole number under the first of the keys that holds one; of a list the largest."""
    for key in keys:
        value = config.get(key)
        numbers = [item for item in (value if isinstance(value, list) else [value]) if type(item) is int]
        if numbers:
            return max(numbers)
    return None


def _parts(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(prefix for messages, part): the configuration, and those within it."""
    yield "", config
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("_config") and key != "quantization_config":
            for name, part in _parts(value):
                yield f"{key[:60]}.{name}", part


def _value_problem(key: str, value: object) -> str:
    """What is wrong with a value, as the rest of a sentence that begins with its key."""
    if key in _WHOLE_NUMBERS:
        return _number_problem(value, _WHOLE_NUMBERS[key])
    if key in _KINDS:
        return _kind_problem(value, _KINDS[key])
    if type(value) is int and _COUNTED.fullmatch(key) and abs(value) > _MAX_COUNT:
        return f"is {shown(value)}, which is beyond any use"
    return ""


def _number_problem(value: object, allowed: _Range) -> str:
    if isinstance(value, list):
        if not allowed.may_be_list or not value:
            return f"is {shown(value)}, where a whole number belongs"
        single = allowed._replace(may_be_list=False)
        return next((problem for item in value if (problem := _number_problem(item, single))), "")
    if type(value) is not int:
        return f"is {shown(value)}, where a whole number belongs"
    if not allowed.low <= value <= allowed.high:
        return f"is {shown(value)}, which is not between {allowed.low} and {allowed.high}"
    return ""


def _kind_problem(value: object, kinds: tuple[type, ...]) -> str:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(dict.fromkeys(kind_of(kind()) for kind in kinds))
        return f"is {shown(value)}, where {wanted} belongs"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which is not finite"
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return f"is {shown(value)}, which is longer than {_MAX_TEXT} characters"
    if isinstance(value, list | dict) and len(value) > _MAX_ITEMS:
        return f"has {len(value)} entries, which is more than {_MAX_ITEMS}"
    return ""


def _relation_problem(part: Mapping[str, Any]) -> str:
    """Numbers that contradict each other."""
    num_experts, top_k = largest_number(part, NUM_EXPERTS), largest_number(part, TOP_K)
    if num_experts and top_k and top_k > num_experts:
        return f"top_k of {top_k} experts for a token is more than the {num_experts} experts of a layer"
    if num_experts and num_experts > 1 and top_k == 0:
        return f"top_k is 0, which leaves every token without any of the {num_experts} experts"
    return ""
