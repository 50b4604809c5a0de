"""Whether the stored tensors fit what config.json says: layers, experts, vocabulary. Light: no torch.

Only what can be told from names and shapes alone, whatever the architecture: the load compares the rest with the model
that it builds. A tensor whose name is not understood is left to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from engine.checkpoint.config_file import NUM_EXPERTS, largest_number, text_part
from engine.errors import CheckpointError
from offload.bounded_json import shown

_HINT: Final = "The weights and config.json are not of the same model: fetch both again."
_LAYER = re.compile(r"(?P<stack>(?:.*\.)?(?:layers|blocks|h))\.(?P<layer>\d{1,6})\.(?P<rest>.+)")
_EXPERT = re.compile(r"(?P<module>(?:.*\.)?experts)\.(?P<expert>\d{1,6})\.(?P<name>.+)")
_FUSED = re.compile(r"(?P<module>(?:.*\.)?experts)\.(?P<name>gate_up_proj|up_proj|gate_proj|down_proj)(?P<bias>_bias)?")
_EMBEDDING = re.compile(
    r"(?:model\.|language_model\.|backbone\.|transformer\.)*(?:embed_tokens|embeddings|wte)\.weight"
)
_UP = ("gate_proj.weight", "up_proj.weight", "w1.weight", "w3.weight")
_DOWN = ("down_proj.weight", "w2.weight")

Shape = tuple[int, ...]


class _Named(NamedTuple):
    """A tensor of an expert: `model.layers.3.mlp.experts`, `3`, `7`, `up_proj.weight`."""

    key: str
    layer: int
    expert: int
    name: str
    shape: Shape


def check_against_config(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
    """`shapes` are those of all stored tensors, by key. Raises CheckpointError, which names tensor and config key."""
    problem = contradiction(config, shapes)
    if problem:
        raise CheckpointError(f"The weights do not fit config.json: {problem}.", _HINT)


def contradiction(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> str:
    """What in the tensors' names and shapes contradicts the configuration; empty: nothing that could be told."""
    text = text_part(config)
    found = _LayersFound(shapes)
    return (
        found.problem_of_layers(text)
        or _problem_of_experts(found.experts(), text)
        or _problem_of_fused(shapes, text)
        or _problem_of_embedding(shapes, text)
    )


class _LayersFound:
    """The decoder layers that are stored, by their tensors' names."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self._rests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for key in shapes:
            if found := _LAYER.fullmatch(key):
                self._rests[found["stack"]][int(found["layer"])].add(found["rest"])

    def _decoder(self) -> dict[int, set[str]]:
        """The layers of the stack that holds experts: a model may hold an encoder's layers as well."""
        with_experts = [
            layers
            for layers in self._rests.values()
            if any("experts" in rest or "block_sparse_moe" in rest for rests in layers.values() for rest in rests)
        ]
        return max(with_experts, key=len, default={})

    def problem_of_layers(self, text: Mapping[str, Any]) -> str:
        """Layers that are missing, and ordinary ones beyond the last. Those that predict further tokens are none."""
        num_layers, layers = text.get("num_hidden_layers"), self._decoder()
        if type(num_layers) is not int or not layers:
            return ""
        missing = next((number for number in range(num_layers) if number not in layers), None)
        if missing is not None:
            return f"num_hidden_layers is {num_layers}, and there is no tensor of layer {missing}"
        known = [rests for number, rests in layers.items() if number < num_layers]
        for number in sorted(layers):
            if number >= num_layers and any(layers[number] == rests for rests in known):
                return f"num_hidden_layers is {num_layers}, and there are tensors of layer {number}"
        return ""

    def experts(self) -> list[_Named]:
        """The tensors of experts that are stored one by one."""
        named = []
        for key, shape in self._shapes.items():
            if (found := _EXPERT.fullmatch(key)) and (at := _LAYER.fullmatch(key)):
                named.append(_Named(key, int(at["layer"]), int(found["expert"]), found["name"], shape))
        return named


def _problem_of_experts(experts: Iterable[_Named], text: Mapping[str, Any]) -> str:
    hidden, num_layers = text.get("hidden_size"), text.get("num_hidden_layers")
    num_experts = _number_of_experts(text)
    by_name: dict[tuple[int, str], dict[int, _Named]] = defaultdict(dict)
    for tensor in experts:
        by_name[tensor.layer, tensor.name][tensor.expert] = tensor
        is_matrix = tensor.name.endswith((*_UP, *_DOWN))
        if is_matrix and len(tensor.shape) != 2:
            return f"{shown(tensor.key)} has shape {list(tensor.shape)}, where an expert's weight has two dimensions"
        if is_matrix and type(hidden) is int and not _has_latent_size(text) and _is_transposed(tensor, hidden):
            return f"{shown(tensor.key)} has shape {list(tensor.shape)}, which is transposed: hidden_size is {hidden}"
    for (layer, name), stored in by_name.items():
        if type(num_layers) is int and layer >= num_layers:
            continue
        first = stored[min(stored)]
        for tensor in stored.values():
            if tensor.shape != first.shape:
                return (
                    f"{shown(tensor.key)} has shape {list(tensor.shape)}, and that of expert {first.expert} "
                    f"{list(first.shape)}"
                )
        wanted = num_experts if num_experts is not None else max(stored) + 1
        if sorted(stored) != list(range(wanted)):
            return f"of layer {layer}, {len(stored)} experts have {shown(name)}, where {wanted} experts were expected"
    return ""


def _is_transposed(tensor: _Named, hidden: int) -> bool:
    rows, columns = tensor.shape
    inner, outer = (rows, columns) if tensor.name.endswith(_UP) else (columns, rows)
    return outer != hidden and inner == hidden


def _has_latent_size(text: Mapping[str, Any]) -> bool:
    """Whether the experts may work on vectors of another size than the layer's."""
    return any("latent" in key for key in text)


def _number_of_experts(text: Mapping[str, Any]) -> int | None:
    """The number in every MoE layer; None where the configuration gives none, or one a layer."""
    value = next((text[key] for key in NUM_EXPERTS if text.get(key) is not None), None)
    return value if type(value) is int else None


def _problem_of_fused(shapes: Mapping[str, Shape], text: Mapping[str, Any]) -> str:
    """Experts that are stored in one tensor a layer: [experts, ., .], a bias [experts, .]."""
    num_experts = _number_of_experts(text)
    for key, shape in shapes.items():
        found = _FUSED.fullmatch(key)
        if found is None:
            continue
        num_dimensions = 2 if found["bias"] else 3
        if len(shape) != num_dimensions:
            return f"{shown(key)} has shape {list(shape)}, where {num_dimensions} dimensions were expected"
        if num_experts is not None and shape[0] != num_experts:
            return f"{shown(key)} has shape {list(shape)}, where {num_experts} experts were expected"
    return ""


def _problem_of_embedding(shapes: Mapping[str, Shape], text: Mapping[str, Any]) -> str:
    vocab, hidden = text.get("vocab_size"), text.get("hidden_size")
    if type(vocab) is not int or type(hidden) is not int or largest_number(text, ("embedding_size",)) is not None:
        return ""
    for key, shape in shapes.items():
        if _EMBEDDING.fullmatch(key) and shape != (vocab, hidden):
            return f"{shown(key)} has shape {list(shape)}, where vocab_size is {vocab} and hidden_size {hidden}"
    return ""
